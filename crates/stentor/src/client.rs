//! Talking to a running server: addresses, topics in URLs, and answers.
//!
//! Topics and ids are bytes of somebody else's choice. They enter a URL escaped, each by the rules
//! of its place: what is harmless in a path may separate parameters in a query.

mod socket_file;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use stentor_config::{ControlAddress, ListenAddress, Settings, parse_address};
use stentor_http_client::agent_over;
use stentor_io::{ByteStream, Dialer, HostDialer};
use stentor_wire::target::Server;
use ureq::config::ConfigBuilder;
use ureq::http::header::{AUTHORIZATION, HeaderValue};
use ureq::http::{Request, Response};
use ureq::middleware::{Middleware, MiddlewareNext};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body, SendBody};

use crate::args::usage;
use crate::trust::{Explained, TOKEN_RULE, TOKEN_VARIABLE, TrustFlags, explain};
use crate::{Failure, say};
use socket_file::SocketFile;

/// The control listener of a server with the default settings.
pub(crate) const CONTROL_DEFAULT: &str = "http://127.0.0.1:8081";

/// What commands ask that are told of no server: `STENTOR_SERVER`, or else the control listener of
/// the settings that the environment names, as in a container, or else `usual`. This is no value of
/// the flag, so it conflicts with no other flag.
pub(crate) fn default_server(usual: &'static str) -> &'static OsStr {
    let named = NAMED_SERVER.as_deref().or(OWN_CONTROL.as_deref().map(OsStr::new));
    named.unwrap_or(OsStr::new(usual))
}

static NAMED_SERVER: LazyLock<Option<OsString>> =
    LazyLock::new(|| env::var_os("STENTOR_SERVER").filter(|server| !server.is_empty()));

static OWN_CONTROL: LazyLock<Option<String>> = LazyLock::new(control_of_environment);

/// The control listener of a server that is started with this environment, if that says something
/// of it and is good.
fn control_of_environment() -> Option<String> {
    let file = env::var_os("STENTOR_CONFIG");
    if file.is_none() && env::var_os("STENTOR_CONTROL").is_none() {
        return None;
    }
    let settings = Settings::load(file.as_deref().map(Path::new), env::vars_os()).ok()?;
    let ListenAddress { address, tls, .. } = settings.control.first()?;
    match address {
        ControlAddress::Unix(path) => Some(format!("unix:{}", path.display())),
        ControlAddress::Tcp(tcp) => {
            let scheme = if *tls { "https" } else { "http" };
            Some(format!("{scheme}://{}", reachable(*tcp)))
        }
    }
}

/// Where a listener of this host is reached from here.
fn reachable(mut listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() {
        listener.set_ip(match listener {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listener
}

/// A server, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    /// What its URLs begin with: `http://127.0.0.1:8080`, without a slash at the end.
    base: String,
    route: Route,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    /// By the host in its URLs.
    Host,
    /// By the socket file it listens on.
    File(PathBuf),
    /// By this address. Its zone (RFC 4007) is none of the URL's.
    Address(SocketAddr),
}

impl BaseUrl {
    /// Reads a URL, whose scheme may be left out, or the `unix:PATH` of a control listener.
    pub(crate) fn parse(text: &str) -> Result<BaseUrl, String> {
        if text.starts_with("unix:") {
            let ControlAddress::Unix(path) = text.parse()? else { unreachable!("it is a path") };
            // A name that control goes by, as it does on every socket file.
            return Ok(BaseUrl { base: "http://localhost".to_owned(), route: Route::File(path) });
        }
        let server = Server::alone(text).ok_or_else(|| {
            format!(
                "'{text}' is not a server: write http://HOST:PORT, https://HOST:PORT, or unix:PATH"
            )
        })?;
        let scheme = match server.scheme {
            "" => "http",
            scheme @ ("http" | "https") => scheme,
            other => return Err(format!("'{other}' is not supported, only http and https")),
        };
        if server.host.bytes().all(|byte| byte.is_ascii_digit()) {
            // Libraries take a number for an IPv4 address.
            let host = server.host;
            return Err(format!("'{host}' is no host: write HOST:PORT, such as 127.0.0.1:{host}"));
        }
        let server = Server { scheme, ..server };
        let Some((address, _)) = server.host.split_once('%') else {
            return Ok(BaseUrl { base: server.to_string(), route: Route::Host });
        };
        let port = server.port.unwrap_or(if scheme == "https" { 443 } else { 80 });
        let host = format!("{address}]");
        let route = Route::Address(parse_address(&format!("{}:{port}", server.host))?);
        Ok(BaseUrl { base: Server { host: &host, ..server }.to_string(), route })
    }

    /// Whether it is asked by TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// Whether the token of the environment may go there: it is on this machine, or the
    /// environment names it and it is asked by TLS. Over plain HTTP anybody on the way could read
    /// the token.
    pub(crate) fn is_own(&self) -> bool {
        let named = NAMED_SERVER.as_deref().and_then(OsStr::to_str);
        self.is_here()
            || self.is_one_of(named.filter(|_| self.is_secure()))
            || self.is_one_of(OWN_CONTROL.as_deref())
    }

    fn is_one_of(&self, named: Option<&str>) -> bool {
        named.and_then(|text| BaseUrl::parse(text).ok()).is_some_and(|named| named == *self)
    }

    /// Whether it is on this machine by its name or address.
    fn is_here(&self) -> bool {
        match &self.route {
            Route::File(_) => true,
            Route::Address(address) => is_loopback(address.ip()),
            Route::Host => Server::alone(&self.base).is_some_and(|server| {
                let host = server.host.trim_matches(['[', ']']);
                host == "localhost" || host.parse().is_ok_and(is_loopback)
            }),
        }
    }

    /// The URL of a path that needs no escaping.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The URL of a topic: every byte of its name that could be taken for syntax is escaped.
    pub(crate) fn topic(&self, topic: &str) -> String {
        let mut url = self.base.clone();
        escape(&mut url, topic, b"/-._~!$&'()*+,;=:@");
        url
    }

    /// The URL of the stream of many topics, with these parameters in its query.
    pub(crate) fn events<'p>(
        &self,
        parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> String {
        let mut url = self.page("/-/events");
        for (place, (name, value)) in parameters.into_iter().enumerate() {
            url += if place == 0 { "?" } else { "&" };
            url += &format!("{name}=");
            escape(&mut url, value, b"/-._~*,:@");
        }
        url
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Appends `text`, escaping every byte but letters, digits and those in `plain`. percent-encoding
/// would take a set of bytes for each place, which is longer than this loop.
fn escape(url: &mut String, text: &str, plain: &[u8]) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.route {
            Route::File(path) => write!(f, "unix:{}", path.display()),
            Route::Host | Route::Address(_) => f.write_str(&self.base),
        }
    }
}

/// A topic as an argument.
pub(crate) fn parse_topic(text: &str) -> Result<String, String> {
    let topic = parse_pattern(text)?;
    match topic.contains('*') {
        true => {
            Err("a message has one topic; patterns such as /a/* and /a/** are for readers".into())
        }
        false => Ok(topic),
    }
}

/// A topic, or a pattern of topics, as an argument.
pub(crate) fn parse_pattern(text: &str) -> Result<String, String> {
    if !text.starts_with('/') || text.len() == 1 {
        return Err("a topic is a path, such as /quotes/aapl".to_owned());
    }
    let is_odd = |segment: &str| segment.contains('*') && segment != "*";
    let (before, last) = text.rsplit_once('/').unwrap_or_default();
    if before.split('/').any(is_odd) || last != "**" && is_odd(last) {
        return Err(
            "patterns are /a/* or /a/**: '*' stands for a whole segment, and '**' at the end \
                    for any rest"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A client of `server` that keeps its connections. `answer_timeout` is for all of an exchange.
pub(crate) fn agent(
    server: &BaseUrl,
    trust: &TrustFlags,
    answer_timeout: Option<Duration>,
) -> Result<Agent, Failure> {
    agent_of(server, trust, config().timeout_global(answer_timeout))
}

/// A client for answers that never end. The head has to come soon; after it, only a silence of
/// `silence_max` is an error.
pub(crate) fn stream_agent(
    server: &BaseUrl,
    trust: &TrustFlags,
    silence_max: Duration,
) -> Result<Agent, Failure> {
    let config = config().timeout_recv_response(Some(HEAD_TIMEOUT));
    agent_of(server, trust, config.timeout_per_read(Some(silence_max)))
}

fn agent_of(
    server: &BaseUrl,
    trust: &TrustFlags,
    mut config: ConfigBuilder<AgentScope>,
) -> Result<Agent, Failure> {
    let is_own = server.is_own();
    if trust.authorization(is_own).map_err(usage)?.is_some() {
        config = config.middleware(SendToken(trust.clone(), is_own));
    }
    if trust.withholds_token(is_own) {
        say::note(format!("{TOKEN_VARIABLE} is not sent to {server}: {TOKEN_RULE}"));
    }
    if server.is_secure() || trust.names_files() {
        config = config.tls_config(trust.tls()?.config);
    }
    Ok(match &server.route {
        Route::Host => config.build().new_agent(),
        Route::File(path) => agent_over(config.build(), Arc::new(SocketFile(path.clone()))),
        Route::Address(address) => agent_over(config.build(), Arc::new(OneAddress(*address))),
    })
}

/// Connects to this address, whatever host a URL names.
#[derive(Debug)]
struct OneAddress(SocketAddr);

impl Dialer for OneAddress {
    fn resolve(&self, _: &str, _: Option<u64>) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![self.0])
    }

    fn connect(&self, to: SocketAddr, until_ms: Option<u64>) -> io::Result<Arc<dyn ByteStream>> {
        HostDialer.connect(to, until_ms)
    }
}

/// A middleware that adds the token to each request.
struct SendToken(TrustFlags, bool);

impl Middleware for SendToken {
    fn handle(
        &self,
        mut request: Request<SendBody<'_>>,
        next: MiddlewareNext<'_>,
    ) -> Result<Response<Body>, ureq::Error> {
        let field =
            self.0.authorization(self.1).map_err(|reason| ureq::Error::Other(reason.into()))?;
        if let Some(field) = field {
            let mut field =
                HeaderValue::from_str(&field).map_err(|error| ureq::Error::Http(error.into()))?;
            field.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, field);
        }
        next.handle(request)
    }
}

/// What all clients have in common: they go straight to the server they were told, and every
/// status is an answer, not an error.
fn config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .user_agent(concat!("stentor/", env!("CARGO_PKG_VERSION")))
}

/// The whole body of an answer.
pub(crate) fn body(answer: &mut Response<Body>) -> Result<Vec<u8>, ureq::Error> {
    let mut data = Vec::new();
    let mut reader = answer.body_mut().with_config().limit(BODY_BYTES_MAX).reader();
    reader.read_to_end(&mut data)?;
    Ok(data)
}

/// What an answer says, in JSON.
pub(crate) fn json<T: DeserializeOwned>(answer: &mut Response<Body>) -> Result<T, Failure> {
    let unclear = |error: String| Failure::Failed(format!("the answer is unclear: {error}"));
    let data = body(answer).map_err(|error| unclear(error.to_string()))?;
    serde_json::from_slice(&data).map_err(|error| unclear(error.to_string()))
}

/// Returns an answer of success. `what` begins the message of a refusal.
pub(crate) fn success(
    server: &BaseUrl,
    what: &str,
    answer: Result<Response<Body>, ureq::Error>,
) -> Result<Response<Body>, Failure> {
    let mut answer = answer.map_err(|error| unreachable(server, &error))?;
    if answer.status().is_success() { Ok(answer) } else { Err(refusal(server, what, &mut answer)) }
}

/// The body of a rejection (RFC 9457), as far as people read it.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// What a refusal says: the status, and the server's reason, be it a problem or text. A reason that
/// goes on and on is cut.
pub(crate) fn refusal(server: &BaseUrl, what: &str, answer: &mut Response<Body>) -> Failure {
    let mut reason = Vec::new();
    // Whatever came of it before an error is better than nothing.
    let _ = answer.body_mut().as_reader().take(REASON_BYTES_MAX).read_to_end(&mut reason);
    let reason = match serde_json::from_slice(&reason) {
        Ok(Problem { detail }) => detail,
        Err(_) => String::from_utf8_lossy(&reason).into_owned(),
    };
    let status = answer.status();
    Failure::Failed(match reason.trim_end() {
        "" => format!("{what}: {status} from {server}, without a reason"),
        reason => format!("{what}: {status}: {reason}"),
    })
}

/// What a request without an answer says.
pub(crate) fn unreachable(server: &BaseUrl, error: &ureq::Error) -> Failure {
    let of = |why: String| Failure::Failed(format!("no answer from {server}: {why}"));
    if let Some(Explained { what, hint }) = explain(error) {
        let failure = of(what);
        return match hint {
            Some(hint) => failure.tip(hint),
            None => failure,
        };
    }
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => of(
            error.to_string()
        )
        .tip(
            "'stentor serve' starts a server; --server ADDRESS or STENTOR_SERVER names another one",
        ),
        ureq::Error::Io(error) => of(error.to_string()),
        error => of(error.to_string()),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A reason is a sentence; this is a page.
const REASON_BYTES_MAX: u64 = 4 * 1024;

/// Above any message a server can be configured to take.
const BODY_BYTES_MAX: u64 = 512 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        for (text, url) in [
            ("http://127.0.0.1:8081", Some("http://127.0.0.1:8081")),
            ("http://[::1]:8081/", Some("http://[::1]:8081")),
            ("localhost:8081", Some("http://localhost:8081")),
            ("https://example.com", Some("https://example.com")),
            ("https://[::1]:8443/", Some("https://[::1]:8443")),
            ("https://", None),
            ("wss://a", None),
            ("unix:", None),
            ("http://", None),
            ("http://a/b", None),
            ("http://user@a", None),
            ("http://a:b", None),
            ("http://:80", None),
            ("http://[::1", None),
            ("a:99999", None),
            ("31801", None),
            ("http://31801", None),
            ("", None),
        ] {
            let server = BaseUrl::parse(text).ok();
            assert_eq!(server.map(|server| server.to_string()).as_deref(), url, "{text}");
        }
        let server = BaseUrl::parse("http://[fe80::1%lo]:8081").unwrap();
        assert_eq!(server.to_string(), "http://[fe80::1]:8081");
        let Route::Address(SocketAddr::V6(address)) = server.route else { panic!("{server:?}") };
        assert_eq!((address.scope_id(), address.port()), (1, 8081));
        assert!(BaseUrl::parse("http://[fe80::1%nosuch]:1").unwrap_err().contains("nosuch"));
        let server = BaseUrl::parse("unix:/run/x").unwrap();
        assert_eq!(server.to_string(), "unix:/run/x");
        assert_eq!(server.page("/-/status"), "http://localhost/-/status");
    }

    #[test]
    fn own_servers_get_the_token_of_the_environment() {
        for (text, is_own) in [
            ("unix:/run/x", true),
            ("http://127.0.0.1:8081", true),
            ("http://127.9.8.7", true),
            ("https://[::1]:8443", true),
            ("http://[::ffff:127.0.0.1]:1", true),
            ("localhost:8081", true),
            ("http://localhost.example", false),
            ("http://10.0.0.1:8081", false),
            ("https://example.com", false),
            ("http://[fe80::1%lo]:8081", false),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().is_own(), is_own, "{text}");
        }
        let named = BaseUrl::parse("https://example.com").unwrap();
        assert!(named.is_one_of(Some("https://example.com/")) && !named.is_one_of(None));
        assert!(!named.is_one_of(Some("https://example.com:444")));
    }

    #[test]
    fn topics_are_escaped() {
        let server = BaseUrl::parse("h:1").unwrap();
        assert_eq!(server.topic("/quotes/aapl"), "http://h:1/quotes/aapl");
        assert_eq!(server.topic("/a b?c#d%41/é"), "http://h:1/a%20b%3Fc%23d%2541/%C3%A9");
        let parameters = [("topic", "/a b&c=d+é"), ("topic", "/quotes/*"), ("since", "1f-2#%")];
        assert_eq!(
            server.events(parameters),
            "http://h:1/-/events?topic=/a%20b%26c%3Dd%2B%C3%A9&topic=/quotes/*&since=1f-2%23%25"
        );
        assert!(parse_topic("quotes").is_err());
        assert!(parse_topic("/").is_err());
        for bad in ["/*", "/a/**", "/a*", "/a/*/b"] {
            assert!(parse_topic(bad).is_err(), "{bad}");
        }
        for good in ["/*", "/a/**", "/a/*/b", "/*/**", "/a"] {
            assert_eq!(parse_pattern(good).as_deref(), Ok(good));
        }
        for bad in ["/a*", "/**/a", "/***", "/*b/c", "a", "/"] {
            assert!(parse_pattern(bad).is_err(), "{bad}");
        }
    }
}
