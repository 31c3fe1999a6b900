//! What a run is to do: the parsed and checked form of the command line.
//!
//! Nothing here is optional in the sense of "decide later": who makes a plan has decided, and the
//! engine does what it says.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stentor_tls::{Identity, Trust};
use ureq::tls::TlsConfig;

use crate::network::Network;
use crate::target::Target;

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Target and the like.
    pub setup: Setup,
    /// What to do.
    pub task: Task,
}

/// The kind of a run, and its own settings.
#[derive(Clone, Debug)]
pub enum Task {
    /// Requests as fast as possible, or at a rate.
    Requests(RequestLoop),
    /// Connections that are opened and kept.
    Hold(Hold),
    /// Readers, and messages for them.
    Push(Push),
    /// Connections that come all at once, beside some that were there before.
    Surge(Surge),
}

/// What every plan says.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What to connect to, and to ask for.
    pub target: Target,
    /// Header fields of every request besides those it needs.
    pub headers: Vec<(String, String)>,
    /// Threads, each with a file table of its own. None: as many as the cores, and more if the
    /// limit of open files asks for it.
    pub threads: Option<usize>,
    /// Addresses to connect from. None: on loopback as many as are needed; else the host's own.
    pub sources: Option<Network>,
    /// A process on this machine whose memory and processor time are watched.
    pub pid: Option<u32>,
    /// Who is believed to be a server that is asked by TLS; the system's roots are not looked up
    /// here. None: nobody, and nobody is asked so.
    pub trust: Option<Arc<Trust>>,
    /// The certificate that it is shown if it asks for one.
    pub identity: Option<Arc<Identity>>,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It asks once and then stays open, silent.
    Idle,
    /// Server-Sent Events.
    Sse,
    /// A WebSocket.
    Ws,
    /// A long-poll, asked again whenever it is answered.
    Poll,
}

/// How a connection of a [`RequestLoop`] ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// It is kept for the next request.
    Keep,
    /// After one request, in order: `Connection: close`, and FIN.
    Fin,
    /// After one answer, with a reset: no TIME_WAIT, and what is under way is lost.
    Reset,
}

/// When a run of requests is over.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Until {
    /// After so long.
    Time(Duration),
    /// After so many answers.
    Requests(u64),
}

/// `bench get` and `bench put`.
#[derive(Clone, Debug)]
pub struct RequestLoop {
    /// What is requested.
    pub method: RequestMethod,
    /// How many topics requests take in turn. [`TOPIC`] in the path stands for the number of one,
    /// from 0 on; without it the path ends in the number. None: all requests have this path.
    pub topics: Option<u32>,
    /// Connections open at a time.
    pub connections: u32,
    /// Requests sent at once on a connection, before the first answer.
    pub pipeline: u16,
    /// How a connection ends.
    pub closing: Closing,
    /// When the run is over.
    pub until: Until,
    /// Requests per second, an open loop: a request is due when its time has come, whether or not
    /// a connection is free, and its latency counts from then. None: a closed loop.
    pub rate: Option<f64>,
}

/// The method of the requests of a [`RequestLoop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestMethod {
    /// Reads.
    Get,
    /// Publishes a body of so many bytes.
    Put(usize),
}

/// The place of the topic's number in the path of a target.
pub const TOPIC: &str = "{n}";

/// `bench hold`.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Connections to open.
    pub connections: u32,
    /// What they are for.
    pub role: Role,
    /// Connections opened per second. None: as fast as it goes.
    pub ramp: Option<u32>,
    /// How long to hold them once all are open.
    pub duration: Duration,
}

/// `bench push`.
#[derive(Clone, Debug)]
pub struct Push {
    /// Readers.
    pub connections: u32,
    /// How they read; never [`Role::Idle`].
    pub role: Role,
    /// Readers opened per second. None: as fast as it goes.
    pub ramp: Option<u32>,
    /// Other servers that have what is published; readers are spread over all.
    pub also: Vec<Target>,
    /// How messages are published.
    pub publish: Publish,
    /// Messages per second.
    pub rate: f64,
    /// Messages in all.
    pub messages: u32,
    /// How many per cent of the readers stop reading while messages are published.
    pub stall_percent: u8,
}

/// How a message is published.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Where to.
    pub target: Target,
    /// `PUT` or `POST`.
    pub method: String,
    /// Header fields besides those it needs.
    pub headers: Vec<(String, String)>,
    /// The body; `{message}` stands for the message.
    pub body: String,
    /// Bytes of the message; at least [`crate::delivery::STAMP_BYTES`].
    pub size: usize,
    /// Who is believed to be that server, if it is asked by TLS.
    pub tls: Option<TlsConfig>,
}

/// `bench surge`.
#[derive(Clone, Debug)]
pub struct Surge {
    /// Connections that come at once.
    pub connections: u32,
    /// What they are for.
    pub role: Role,
    /// Within how long they come.
    pub within: Duration,
    /// What those who were there before ask for and read.
    pub beside: Box<Target>,
    /// Keep-alive connections that were there before.
    pub bystanders: u32,
    /// Requests per second among all bystanders.
    pub bystander_rate: f64,
    /// Readers by Server-Sent Events that were there before, and messages for them.
    pub listeners: Option<Listeners>,
    /// The watched process is stopped while the newcomers connect: all of them wait when it goes
    /// on.
    pub queued: bool,
    /// After so long without a request the server closes the newcomers, all at the same time:
    /// it is stopped until then.
    pub timeout: Option<Duration>,
    /// How long it is calm before the surge, and how long it is looked on after it.
    pub calm: Duration,
}

/// Readers that are there before others come.
#[derive(Clone, Debug)]
pub struct Listeners {
    /// How many.
    pub readers: u32,
    /// How messages are published.
    pub publish: Publish,
    /// Messages per second.
    pub rate: f64,
}

impl Plan {
    /// Says who is believed to be whom, and what they are shown, for all servers of the plan. The
    /// same is said twice, since publishing is left to a client library.
    pub fn trust(&mut self, trust: &Arc<Trust>, identity: Option<&Arc<Identity>>, tls: &TlsConfig) {
        self.setup.trust = Some(Arc::clone(trust));
        self.setup.identity = identity.cloned();
        if let Some(publish) = self.task.publish() {
            publish.tls = Some(tls.clone());
        }
    }

    /// Has every request carry this `Authorization`, but those for which one was named already.
    pub fn authorize(&mut self, field: &str) {
        let headers = self.task.publish().map(|publish| &mut publish.headers);
        for headers in headers.into_iter().chain([&mut self.setup.headers]) {
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Authorization")) {
                headers.push(("Authorization".to_owned(), field.to_owned()));
            }
        }
    }
}

impl Task {
    /// How messages are published, if they are.
    fn publish(&mut self) -> Option<&mut Publish> {
        match self {
            Task::Requests(_) | Task::Hold(_) => None,
            Task::Push(push) => Some(&mut push.publish),
            Task::Surge(surge) => Some(&mut surge.listeners.as_mut()?.publish),
        }
    }

    /// The command: "get", "put", "hold", "push" or "surge".
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Task::Requests(RequestLoop { method: RequestMethod::Get, .. }) => "get",
            Task::Requests(RequestLoop { method: RequestMethod::Put(_), .. }) => "put",
            Task::Hold(_) => "hold",
            Task::Push(_) => "push",
            Task::Surge(_) => "surge",
        }
    }

    /// What was asked for, in words, for the report.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        match self {
            Task::Requests(requests) => requests.settings(),
            Task::Hold(hold) => hold.settings(),
            Task::Push(push) => push.settings(),
            Task::Surge(surge) => surge.settings(),
        }
    }
}

impl RequestLoop {
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("connections", self.connections.to_string())];
        settings.push(match self.until {
            Until::Time(time) => ("duration", format!("{} s", time.as_secs_f64())),
            Until::Requests(requests) => ("requests", requests.to_string()),
        });
        if let RequestMethod::Put(bytes) = self.method {
            settings.push(("bytes", bytes.to_string()));
        }
        settings.extend(self.topics.map(|topics| ("topics", topics.to_string())));
        if self.pipeline > 1 {
            settings.push(("pipelined", self.pipeline.to_string()));
        }
        match self.closing {
            Closing::Keep => {}
            Closing::Fin => settings.push(("connection", "one per request".to_owned())),
            Closing::Reset => {
                settings.push(("connection", "one per request, closed by a reset".to_owned()));
            }
        }
        if let Some(rate) = self.rate {
            settings.push(("rate", format!("{rate} requests/s")));
        }
        settings
    }
}

impl Hold {
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("connections", self.connections.to_string()),
            ("as", self.role.name().to_owned()),
            ("held for", format!("{} s", self.duration.as_secs_f64())),
        ];
        settings.extend(self.ramp.map(|ramp| ("ramp", format!("{ramp}/s"))));
        settings
    }
}

impl Push {
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("readers", self.connections.to_string()),
            ("as", self.role.name().to_owned()),
            ("messages", self.messages.to_string()),
            ("rate", format!("{} messages/s", self.rate)),
            ("size", format!("{} B", self.publish.size)),
            ("published to", self.publish.target.url.clone()),
        ];
        settings.extend(self.also.iter().map(|target| ("also read at", target.url.clone())));
        settings.extend(self.ramp.map(|ramp| ("ramp", format!("{ramp}/s"))));
        if self.stall_percent > 0 {
            settings.push(("stalled", format!("{} %", self.stall_percent)));
        }
        settings
    }
}

impl Surge {
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("connections", self.connections.to_string()),
            ("as", self.role.name().to_owned()),
        ];
        settings.push(match self.queued {
            true => ("queued", "all".to_owned()),
            false => ("within", format!("{} s", self.within.as_secs_f64())),
        });
        settings.push(("bystanders", self.bystanders.to_string()));
        settings.push(("their rate", format!("{} requests/s", self.bystander_rate)));
        if let Some(listeners) = &self.listeners {
            settings.push(("readers", listeners.readers.to_string()));
            settings.push(("messages", format!("{}/s", listeners.rate)));
        }
        if let Some(timeout) = self.timeout {
            settings.push(("timeout", format!("{} s", timeout.as_secs_f64())));
        }
        settings
    }
}

impl Role {
    /// As it is called on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Idle => "idle",
            Role::Sse => "sse",
            Role::Ws => "ws",
            Role::Poll => "poll",
        }
    }
}
