//! Our end of an HTTP exchange, as far as it is bytes: what a server answers, taken apart as it
//! comes in.
//!
//! An [`AnswerParser`] is the few bytes of state between two reads. It owns no buffer: a head, or a
//! WebSocket frame, that has not arrived whole is left in the input, and whoever reads keeps it
//! until there is more. Content is lent in whatever pieces it came.

use stentor_wire::error::Rejection;
use stentor_wire::http1::response::{self, ResponseBody, ResponseHead};
use stentor_wire::http1::{Body, BodyLength, Step};
use stentor_wire::status::Status;
use stentor_wire::websocket::client::{ServerFrame, server_frame};

/// Where in an answer the next byte belongs.
#[derive(Default, Debug)]
pub(crate) enum AnswerParser {
    /// An answer's head comes next, or is cut.
    #[default]
    Head,
    /// Content of known extent.
    Body(Body),
    /// Content that goes on until the connection ends.
    UntilClose,
    /// The connection is a WebSocket.
    Frames,
}

/// The next thing in the input.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// Nothing whole; what is not used up must be shown again with more behind it.
    More,
    /// A final answer begins.
    Head(ResponseHead<'a>),
    /// Content.
    Data(&'a [u8]),
    /// The answer is over; the next one may follow.
    End,
    /// A WebSocket frame.
    Frame(ServerFrame<'a>),
}

impl AnswerParser {
    /// Takes the next thing from the input; returns how many bytes of it are done with. Call it
    /// until it says [`Seen::More`].
    ///
    /// # Errors
    /// What is wrong with the answer. The connection is of no more use.
    pub(crate) fn next<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Seen<'a>), &'static str> {
        match self {
            AnswerParser::Head => self.head(input),
            AnswerParser::UntilClose if input.is_empty() => Ok((0, Seen::More)),
            AnswerParser::UntilClose => Ok((input.len(), Seen::Data(input))),
            AnswerParser::Body(body) => match body.next(input).map_err(Rejection::fixed_text)? {
                Step::Data { data, used } => Ok((used, Seen::Data(data))),
                Step::More { used } => Ok((used, Seen::More)),
                Step::End { used } => {
                    *self = AnswerParser::Head;
                    Ok((used, Seen::End))
                }
            },
            AnswerParser::Frames => {
                match server_frame(input, FRAME_BYTES_MAX).map_err(|broken| broken.reason)? {
                    None => Ok((0, Seen::More)),
                    Some(frame) => Ok((frame.len, Seen::Frame(frame))),
                }
            }
        }
    }

    fn head<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Seen<'a>), &'static str> {
        let mut skipped = 0;
        loop {
            let Some(head) = response::parse(&input[skipped..]).map_err(|bad| bad.reason)? else {
                return Ok((skipped, Seen::More));
            };
            // Others with a status of 1xx announce an answer, and are none (RFC 9110 section 15.2).
            if matches!(head.status, 100 | 102..200) {
                skipped += head.len;
                continue;
            }
            *self = match head.body {
                _ if head.status == Status::SWITCHING_PROTOCOLS.0 => AnswerParser::Frames,
                ResponseBody::None => AnswerParser::Body(Body::new(BodyLength::None)),
                ResponseBody::Length(length) => {
                    AnswerParser::Body(Body::new(BodyLength::Length(length)))
                }
                ResponseBody::Chunked => AnswerParser::Body(Body::new(BodyLength::Chunked)),
                ResponseBody::UntilClose => AnswerParser::UntilClose,
            };
            return Ok((skipped + head.len, Seen::Head(head)));
        }
    }
}

/// The longest frame a server may send us: whole frames are kept until they are complete.
const FRAME_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen of a server's output that comes in pieces which end at `cuts`.
    fn seen(output: &[u8], cuts: &[usize]) -> Result<Vec<String>, &'static str> {
        let mut exchange = AnswerParser::default();
        let (mut kept, mut all) = (Vec::new(), Vec::<String>::new());
        let ends = cuts.iter().copied().chain([output.len()]);
        let mut from = 0;
        for end in ends {
            kept.extend_from_slice(&output[from..end]);
            from = end;
            let mut at = 0;
            loop {
                let (used, seen) = exchange.next(&kept[at..])?;
                at += used;
                match (seen, all.last_mut()) {
                    (Seen::More, _) => break,
                    (Seen::Head(head), _) => all.push(format!("head {}", head.status)),
                    (Seen::Data(data), Some(last)) if last.starts_with("data ") => {
                        last.push_str(&String::from_utf8_lossy(data));
                    }
                    (Seen::Data(data), _) => {
                        all.push(format!("data {}", String::from_utf8_lossy(data)));
                    }
                    (Seen::End, _) => all.push("end".to_owned()),
                    (Seen::Frame(frame), _) => {
                        all.push(format!("frame {}", String::from_utf8_lossy(frame.payload)));
                    }
                }
            }
            kept.drain(..at);
        }
        Ok(all)
    }

    #[test]
    fn it_is_the_same_however_it_is_cut() {
        for (output, expected) in [
            (
                &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No\r\n\r\n"[..],
                &["head 200", "data abc", "end", "head 204", "end"][..],
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n\
                  0\r\nT: u\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                &["head 200", "data abc", "end", "head 200", "end"],
            ),
            (b"HTTP/1.0 200 OK\r\n\r\nto the end", &["head 200", "data to the end"]),
            (
                b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Go\r\n\r\nHTTP/1.1 404 No\r\n\
                  Content-Length: 0\r\n\r\n",
                &["head 404", "end"],
            ),
            (
                b"HTTP/1.1 101 Switching\r\n\r\n\x81\x02hi\x81\x02ho",
                &["head 101", "frame hi", "frame ho"],
            ),
        ] {
            for first in 0..=output.len() {
                assert_eq!(seen(output, &[first]).unwrap(), expected, "cut at {first}");
            }
            let everywhere: Vec<usize> = (0..output.len()).collect();
            assert_eq!(seen(output, &everywhere).unwrap(), expected, "cut everywhere");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for output in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\n\r\n\x81\x80\0\0\0\0",
            b"SSH-2.0-OpenSSH\r\n",
        ] {
            assert!(!seen(output, &[]).unwrap_err().is_empty(), "{output:?}");
        }
    }
}
