//! The common part of `stentor upgrade` and `stentor reload`: a command asks a running server for
//! something, waits until `/-/status` shows the outcome, and prints it in a sentence.

use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

use crate::Failure;
use crate::client::{self, BaseUrl, CONTROL_DEFAULT};
use crate::trust::TrustFlags;

/// Which server, and by which way.
#[derive(Args, Debug)]
pub(crate) struct OperationFlags {
    /// The server's control listener: a URL, or unix:PATH. STENTOR_SERVER names another default
    #[arg(long, value_name = "ADDRESS", value_parser = BaseUrl::parse,
          default_value = client::default_server(CONTROL_DEFAULT))]
    server: BaseUrl,
    /// The server's process, on this host: the user it runs as and root need neither its address
    /// nor a token
    #[arg(long, value_name = "PROCESS", conflicts_with_all = ["server", "token_file"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    process: Option<u32>,
    #[command(flatten)]
    trust: TrustFlags,
}

/// One kind of operation.
pub(crate) trait RemoteOperation {
    /// The entry of a finished operation in the status.
    type Done: DeserializeOwned;

    /// Where it is begun.
    const PAGE: &'static str;

    /// The name of the operations in the status.
    const OPERATIONS: &'static str;

    /// The beginning of a message that the operation was refused.
    const NOT_DONE: &'static str;

    /// Has a process of this host do it.
    fn ask_process(process: u32) -> Result<String, Failure>;

    /// The sentence for an operation that was done.
    fn done(before: u32, process: u32, done: &Self::Done) -> String;

    /// The sentence for one that failed.
    fn failed(process: u32, reason: &str) -> String;
}

/// The answer to the request: what was before.
#[derive(Debug, Deserialize)]
pub(crate) struct OperationBegun {
    pub(crate) pid: u32,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// The entry of one kind of operation in the status.
#[derive(Debug, Deserialize)]
pub(crate) struct OperationStatus<D> {
    pub(crate) under_way: bool,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) last: Option<D>,
    pub(crate) last_failure: Option<OperationFailed>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OperationFailed {
    pub(crate) reason: String,
}

/// Has a server do it, and prints the outcome.
pub(crate) fn run<O: RemoteOperation>(flags: &OperationFlags) -> Result<(), Failure> {
    let sentence = match flags.process {
        Some(process) => O::ask_process(process)?,
        None => ask_server::<O>(flags)?,
    };
    crate::print(&format!("{sentence}\n"))
}

fn ask_server<O: RemoteOperation>(flags: &OperationFlags) -> Result<String, Failure> {
    let agent = client::agent(&flags.server, &flags.trust, Some(ANSWER_TIMEOUT))?;
    let begun = begin::<O>(flags, &agent)?;
    let agent = client::agent(&flags.server, &flags.trust, Some(LOOK_TIMEOUT))?;
    let mut silent = 0;
    loop {
        thread::sleep(LOOK);
        match status::<O>(flags, &agent) {
            Ok((process, operations)) => {
                silent = 0;
                if let Some(outcome) = outcome::<O>(&begun, process, &operations) {
                    return outcome.map_err(Failure::Failed);
                }
            }
            // A process that has just taken over may be busy; a silence that lasts is its end.
            Err(failure) if silent >= SILENT_MAX => return Err(failure),
            Err(_) => silent += 1,
        }
    }
}

fn begin<O: RemoteOperation>(
    flags: &OperationFlags,
    agent: &Agent,
) -> Result<OperationBegun, Failure> {
    let answer = agent.post(flags.server.page(O::PAGE)).send_empty();
    client::json(&mut client::success(&flags.server, O::NOT_DONE, answer)?)
}

fn status<O: RemoteOperation>(
    flags: &OperationFlags,
    agent: &Agent,
) -> Result<(u32, OperationStatus<O::Done>), Failure> {
    let answer = agent.get(flags.server.page("/-/status")).call();
    let what = format!("no status from {}", flags.server);
    let mut answer = client::success(&flags.server, &what, answer)?;
    let mut status: serde_json::Value = client::json(&mut answer)?;
    let process = status["process"].as_u64().and_then(|process| u32::try_from(process).ok());
    let operations = serde_json::from_value(status[O::OPERATIONS].take());
    match (process, operations) {
        (Some(process), Ok(operations)) => Ok((process, operations)),
        _ => Err(Failure::Failed(format!("the status does not speak of {}", O::OPERATIONS))),
    }
}

/// The outcome as a sentence, once it is known.
pub(crate) fn outcome<O: RemoteOperation>(
    begun: &OperationBegun,
    process: u32,
    operations: &OperationStatus<O::Done>,
) -> Option<Result<String, String>> {
    let OperationStatus { under_way, done, failed, last, last_failure } = operations;
    if *failed > begun.failed {
        let reason = last_failure.as_ref().map_or("it is not known why", |it| &it.reason);
        return Some(Err(O::failed(process, reason)));
    }
    match last {
        Some(last) if *done > begun.succeeded => Some(Ok(O::done(begun.pid, process, last))),
        _ if *under_way => None,
        _ => Some(Err(format!(
            "{}: the server has been restarted meanwhile, and process {process} knows of none",
            O::NOT_DONE
        ))),
    }
}

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the server is asked.
const LOOK: Duration = Duration::from_millis(50);

/// How long it may take to say how it is.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// How often in a row it may say nothing.
const SILENT_MAX: u32 = 100;
