//! `stentor bench` as a user runs it: the binary, and what its JSON says of a server whose doings
//! are known.
//!
//! A load generator that errs is worse than none, so its figures are held against something else
//! that counts: the counters of a Stentor, or a server made for the test that answers, stalls,
//! loses and lies exactly as it is told (`stub`). What is asserted are counts, kinds of errors and
//! exit codes. A time is only ever asserted from below, where the server made sure of it.
//!
//! Every run is bounded: one that hangs fails its test when patience ends.

mod get;
mod hold;
mod hostile;
mod peers;
mod push;
mod put;
mod report;
mod secured;
mod stub;
mod surge;

use crate::support::{self, Child, Server, Url, stentor};
use serde_json::Value;

/// A run that is over.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    /// What `--json` printed; null if nothing was printed.
    report: Value,
    err: String,
}

/// Runs `stentor bench LINE --json`; the arguments in the line have spaces between them.
#[track_caller]
fn bench(line: &str) -> Run {
    begin(line).over()
}

/// The same, and leaves it running.
#[track_caller]
fn begin(line: &str) -> Running {
    let args = ["bench"].into_iter().chain(line.split_whitespace()).chain(["--json"]);
    Running(Child::spawn(&mut stentor(args)))
}

/// A run under way.
struct Running(Child);

impl Running {
    #[track_caller]
    fn over(self) -> Run {
        let said = self.0.said();
        let report = match said.out.as_str() {
            "" => Value::Null,
            json => serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}")),
        };
        Run { code: said.code, report, err: said.err }
    }
}

impl Run {
    /// Fails unless it went well: nothing was said, and no error was counted.
    #[track_caller]
    fn fine(self) -> Run {
        let run = self.with_status(0);
        assert_eq!((run.err.as_str(), run.errors()), ("", vec![]), "{run:?}");
        run
    }

    #[track_caller]
    fn with_status(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// A count of the report, such as `requests/completed`.
    #[track_caller]
    fn count(&self, path: &str) -> u64 {
        support::figure(&self.report, path)
    }

    /// A figure that need not be whole.
    #[track_caller]
    fn amount(&self, path: &str) -> f64 {
        let value = self.report.pointer(&format!("/{path}")).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("there is no {path} in {self:?}"))
    }

    /// Errors by kind, the most frequent first.
    #[track_caller]
    fn errors(&self) -> Vec<(&str, u64)> {
        let errors = self.report["errors"].as_array().expect("a report has errors");
        errors
            .iter()
            .map(|error| (error["kind"].as_str().unwrap(), error["count"].as_u64().unwrap()))
            .collect()
    }

    /// How many answers had a status.
    #[track_caller]
    fn status(&self, status: u16) -> u64 {
        let all = self.report["requests"]["statuses"].as_array().expect("there were requests");
        let of_it = all.iter().filter(|pair| pair[0] == status);
        of_it.map(|pair| pair[1].as_u64().unwrap()).sum()
    }
}

fn url(at: Url, path: &str) -> String {
    format!("http://{}{path}", at.0)
}

/// A server with a value at `/a`, and the URL of that.
fn server_with_value(toml: &str) -> (Server, String) {
    let server = Server::configured(toml);
    server.publish("/a", "101:99");
    let url = url(server.public, "/a");
    (server, url)
}
