//! `stentor status`: how a running server is.

mod page;

use std::time::Duration;

use clap::{Args, ValueEnum};
use ureq::http::header::ACCEPT;

use crate::Failure;
use crate::client::{self, BaseUrl, CONTROL_DEFAULT};
use crate::trust::TrustFlags;

/// Print how a running server is: connections, topics, readers, bytes, memory
///
/// The figures that matter most, in groups. --json prints all that /-/status has;
/// docs/operating.md says what each figure means. Exit code 1 if the server does not answer.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// The server's control listener: a URL, or unix:PATH. STENTOR_SERVER names another default
    #[arg(long, value_name = "ADDRESS", value_parser = BaseUrl::parse,
          default_value = client::default_server(CONTROL_DEFAULT))]
    server: BaseUrl,
    /// Ask only whether the server is ready: prints 'ready', or fails with the reason. A health
    /// check for containers. 'publish' asks whether publishing works, too
    #[arg(long, value_name = "FOR", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "read")]
    ready: Option<Ready>,
    /// Print all figures as JSON, as /-/status has them
    #[arg(short, long, conflicts_with = "ready")]
    json: bool,
    #[command(flatten)]
    trust: TrustFlags,
}

/// For whom a server is ready.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ready {
    /// Clients that read.
    Read,
    /// Clients that publish.
    Publish,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let agent = client::agent(&args.server, &args.trust, Some(ANSWER_TIMEOUT))?;
    let (page, complaint) = match args.ready {
        Some(Ready::Read) => ("/-/readyz", format!("{} is not ready", args.server)),
        Some(Ready::Publish) => {
            ("/-/readyz/publish", format!("{} is not ready for publishers", args.server))
        }
        None => ("/-/status", format!("no status from {}", args.server)),
    };
    let form = if args.ready.is_some() { "text/plain" } else { "application/json" };
    let request = agent.get(args.server.page(page)).header(ACCEPT, form);
    let mut answer = client::success(&args.server, &complaint, request.call())?;
    let text = client::body(&mut answer);
    let text = text.map_err(|error| client::unreachable(&args.server, &error))?;
    let text = String::from_utf8_lossy(&text);
    if args.ready.is_some() {
        return crate::print(&text);
    }
    if args.json {
        return crate::print(&format!("{}\n", text.trim_end()));
    }
    let status = serde_json::from_str(&text);
    let status = status.map_err(|error| Failure::Failed(format!("{complaint}: {error}")))?;
    crate::print(&page::page(&args.server.to_string(), &status, crate::columns()))
}

const EXAMPLES: &str = "\
Examples:
  stentor status
  stentor status --json | jq .counters.readers_sse
  stentor status --server unix:/run/stentor/control.sock
  stentor status --ready || echo 'not ready'
  stentor status --ready=publish || echo 'the disk or the broker is away'";

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
