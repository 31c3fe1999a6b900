//! The protocol that clients of NATS speak, as bytes: lines, some with a payload behind them.
//!
//! Of it there is what a node needs: it connects, subscribes to its own inbox, publishes, and
//! answers to signs of life. Whatever a server sends is bounded before it is believed.

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// About itself, in JSON.
    Info(Vec<u8>),
    Message(Message),
    Ping,
    Pong,
    Ok,
    /// Something is wrong, and mostly it closes the connection.
    Error(String),
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Message {
    pub(super) subject: String,
    /// The subscription that brings it.
    pub(super) sid: u64,
    pub(super) reply: Option<String>,
    /// With its first line.
    pub(super) headers: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// The client received so many more bytes of the payload, and keeps none of them: no node
    /// writes a message as large.
    pub(super) left_out: usize,
}

impl Message {
    /// The status in its headers: 503 if nobody hears what was asked, 100 for a sign of life.
    pub(super) fn status(&self) -> Option<u16> {
        let line = self.headers.strip_prefix(b"NATS/1.0 ")?;
        let digits = line.get(..3)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

/// The received bytes that the client has not taken yet.
#[derive(Default)]
pub(super) struct Received {
    /// The beginning of what is not whole yet.
    pub(super) bytes: Vec<u8>,
    /// The number of bytes to come that belong to a message that is too large.
    skips: usize,
}

impl Received {
    /// Takes all that is whole.
    ///
    /// # Errors
    /// What is behind it makes no sense: one sentence.
    pub(super) fn take(&mut self, all: &mut Vec<Said>) -> Result<(), &'static str> {
        let mut used = self.skips.min(self.bytes.len());
        self.skips -= used;
        let taken = loop {
            match read(&self.bytes[used..]) {
                Ok(Some((said, length))) => {
                    all.push(said);
                    let end = used + length;
                    used = end.min(self.bytes.len());
                    self.skips = end - used;
                }
                Ok(None) => break Ok(()),
                Err(reason) => break Err(reason),
            }
        };
        self.bytes.drain(..used);
        taken
    }
}

/// Reads what is at the beginning of `bytes`, and how long it is; a message that is too large may
/// be longer than `bytes`. `None`: more is needed.
///
/// # Errors
/// One sentence, if it is not of this protocol.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Said, usize)>, &'static str> {
    let end = memchr::memchr(b'\n', bytes);
    // Also if its end has come with it: how it was cut on its way does not count.
    if end.unwrap_or(bytes.len()) > LINE_BYTES_MAX {
        return Err("a line is too long");
    }
    let Some(end) = end else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let line = std::str::from_utf8(line).map_err(|_| "a line is no text")?;
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let after = end + 1;
    let said = match verb {
        _ if verb.eq_ignore_ascii_case("MSG") => return read_message(rest, false, after, bytes),
        _ if verb.eq_ignore_ascii_case("HMSG") => return read_message(rest, true, after, bytes),
        _ if verb.eq_ignore_ascii_case("INFO") => Said::Info(rest.trim().as_bytes().to_vec()),
        _ if verb.eq_ignore_ascii_case("PING") => Said::Ping,
        _ if verb.eq_ignore_ascii_case("PONG") => Said::Pong,
        _ if verb.eq_ignore_ascii_case("+OK") => Said::Ok,
        _ if verb.eq_ignore_ascii_case("-ERR") => {
            Said::Error(rest.trim().trim_matches('\'').to_owned())
        }
        _ => return Err("it says what no server of NATS says"),
    };
    Ok(Some((said, after)))
}

/// `SUBJECT SID [REPLY] [HEADER-BYTES] BYTES`
fn read_message(
    line: &str,
    has_headers: bool,
    after: usize,
    bytes: &[u8],
) -> Result<Option<(Said, usize)>, &'static str> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    let mut number = || -> Result<usize, &'static str> {
        let number = words.pop().and_then(|word| word.parse().ok()).ok_or(MALFORMED)?;
        if number > u32::MAX as usize { Err("a message is too long") } else { Ok(number) }
    };
    let length = number()?;
    let headers = if has_headers { number()? } else { 0 };
    let (subject, sid, reply) = match words[..] {
        [subject, sid] => (subject, sid, None),
        [subject, sid, reply] => (subject, sid, Some(reply.to_owned())),
        _ => return Err(MALFORMED),
    };
    if headers > length {
        return Err(MALFORMED);
    }
    let left_out = if length > PAYLOAD_BYTES_MAX { length - BEGINNING_BYTES } else { 0 };
    if headers > BEGINNING_BYTES && left_out > 0 {
        return Err("the headers of a message are too long");
    }
    let there = length - left_out;
    let Some(body) = bytes.get(after..after + there + if left_out > 0 { 0 } else { 2 }) else {
        return Ok(None);
    };
    let (body, end) = body.split_at(there);
    if left_out == 0 && end != b"\r\n" {
        return Err(MALFORMED);
    }
    let message = Message {
        subject: subject.to_owned(),
        sid: sid.parse().map_err(|_| MALFORMED)?,
        reply,
        headers: body[..headers].to_vec(),
        payload: body[headers..].to_vec(),
        left_out,
    };
    Ok(Some((Said::Message(message), after + length + 2)))
}

pub(super) fn connect(options: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("CONNECT {options}\r\nPING\r\n").as_bytes());
}

pub(super) fn subscribe(subject: &str, sid: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("SUB {subject} {sid}\r\n").as_bytes());
}

pub(super) fn unsubscribe(sid: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("UNSUB {sid}\r\n").as_bytes());
}

/// Publishes, with a field if one is given.
pub(super) fn publish(
    subject: &str,
    reply: &str,
    field: Option<(&str, u64)>,
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    let space = if reply.is_empty() { "" } else { " " };
    let length = payload.len();
    match field {
        None => {
            out.extend_from_slice(format!("PUB {subject} {reply}{space}{length}\r\n").as_bytes());
        }
        Some((name, value)) => {
            let head = format!("NATS/1.0\r\n{name}: {value}\r\n\r\n");
            let (of_head, all) = (head.len(), head.len() + length);
            let line = format!("HPUB {subject} {reply}{space}{of_head} {all}\r\n{head}");
            out.extend_from_slice(line.as_bytes());
        }
    }
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

pub(super) const PING: &[u8] = b"PING\r\n";
pub(super) const PONG: &[u8] = b"PONG\r\n";

/// A server says much about itself.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Nodes write 1 MiB at most, which JetStream gives back as base64 within JSON, too.
pub(super) const PAYLOAD_BYTES_MAX: usize = 2 << 20;

/// The client keeps so many bytes of a larger message. An answer of JetStream names the sequence
/// before the data.
const BEGINNING_BYTES: usize = 64 << 10;

const MALFORMED: &str = "a message makes no sense";

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads it byte by byte: nothing is there before its last one.
    fn read_whole(text: &[u8]) -> Said {
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), Ok(None), "{end}");
        }
        let (said, length) = read(text).unwrap().unwrap();
        assert_eq!(length, text.len());
        let more = [text, b"PING\r\n"].concat();
        assert_eq!(read(&more), Ok(Some((said.clone(), length))));
        said
    }

    #[test]
    fn what_servers_say() {
        assert_eq!(read_whole(b"INFO {\"a\":1} \r\n"), Said::Info(b"{\"a\":1}".to_vec()));
        assert_eq!(read_whole(b"PING\r\n"), Said::Ping);
        assert_eq!(read_whole(b"pong\r\n"), Said::Pong);
        assert_eq!(read_whole(b"+OK\r\n"), Said::Ok);
        let error = Said::Error("Authorization Violation".to_owned());
        assert_eq!(read_whole(b"-ERR 'Authorization Violation'\r\n"), error);
        let Said::Message(message) = read_whole(b"MSG a.b 1 r.1 5\r\n1\r\n45\r\n") else {
            panic!("it is a message")
        };
        assert_eq!((message.subject.as_str(), message.reply.as_deref()), ("a.b", Some("r.1")));
        assert_eq!(message.sid, 1);
        assert_eq!((&message.payload[..], message.status()), (&b"1\r\n45"[..], None));
        let Said::Message(message) = read_whole(b"HMSG a 1 16 18\r\nNATS/1.0 503\r\n\r\nhi\r\n")
        else {
            panic!("it is a message")
        };
        assert_eq!((&message.payload[..], message.status()), (&b"hi"[..], Some(503)));
        assert_eq!(message.reply, None);
    }

    #[test]
    fn what_no_server_says() {
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "MSG a 1\r\n",
            "MSG a 1 b c 1\r\n",
            "MSG a 1 x\r\n",
            "MSG a x 0\r\n\r\n",
            "MSG a 1 4294967296\r\n",
            "HMSG a 1 65537 2097153\r\n",
            "HMSG a 1 5 4\r\n12345\r\n",
            "MSG a 1 1\r\n123",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(read(b"MSG a 1 2097152\r\n"), Ok(None));
        let line = |length: usize| [b"-ERR ", &vec![b'a'; length - 5][..]].concat();
        for (length, is_good) in [(LINE_BYTES_MAX, true), (LINE_BYTES_MAX + 1, false)] {
            let line = line(length);
            assert_eq!(read(&line).is_ok(), is_good);
            assert_eq!(read(&[&line, &b"\n"[..]].concat()).is_ok(), is_good, "the same as a whole");
        }
    }

    #[test]
    fn what_is_said_to_them() {
        let mut out = Vec::new();
        connect("{}", &mut out);
        subscribe("i.>", 1, &mut out);
        unsubscribe(7, &mut out);
        publish("a", "", None, b"x", &mut out);
        publish("a", "r", None, b"", &mut out);
        publish("a", "r", Some(("Nats-Expected-Last-Subject-Sequence", 7)), b"xy", &mut out);
        let expected = "CONNECT {}\r\nPING\r\nSUB i.> 1\r\nUNSUB 7\r\nPUB a 1\r\nx\r\n\
                        PUB a r 0\r\n\r\nHPUB a r 52 54\r\nNATS/1.0\r\n\
                        Nats-Expected-Last-Subject-Sequence: 7\r\n\r\nxy\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
