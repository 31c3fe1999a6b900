//! What a response head consists of: how many of its bytes are which field.
//!
//! A byte in a head is paid for with every answer. So that its price can be shown, heads are taken
//! apart here, once when they are made, or line by line if they are made for a single answer.

/// A part of a response head: its first line, one of its fields, or the empty line at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HeadPart {
    /// The status line.
    Status,
    /// `Server`
    Server,
    /// `Date`
    Date,
    /// `Connection`
    Connection,
    /// The fields of the CORS protocol, `Access-Control-…`.
    Cors,
    /// `Content-Type`
    ContentType,
    /// `X-Content-Type-Options`
    NoSniff,
    /// `Content-Length`
    ContentLength,
    /// `Content-Encoding`
    ContentEncoding,
    /// `ETag`
    ETag,
    /// `Last-Modified`
    LastModified,
    /// `Cache-Control`
    CacheControl,
    /// `Vary`
    Vary,
    /// Any other field.
    Other,
    /// The empty line.
    End,
}

/// How many parts there are.
pub const HEAD_PARTS: usize = HeadPart::End as usize + 1;

impl HeadPart {
    /// All of them, each at the place of its number.
    pub const ALL: [HeadPart; HEAD_PARTS] = [
        HeadPart::Status,
        HeadPart::Server,
        HeadPart::Date,
        HeadPart::Connection,
        HeadPart::Cors,
        HeadPart::ContentType,
        HeadPart::NoSniff,
        HeadPart::ContentLength,
        HeadPart::ContentEncoding,
        HeadPart::ETag,
        HeadPart::LastModified,
        HeadPart::CacheControl,
        HeadPart::Vary,
        HeadPart::Other,
        HeadPart::End,
    ];

    /// As figures are labelled with it.
    pub fn name(self) -> &'static str {
        match self {
            HeadPart::Status => "status_line",
            HeadPart::Server => "server",
            HeadPart::Date => "date",
            HeadPart::Connection => "connection",
            HeadPart::Cors => "access_control",
            HeadPart::ContentType => "content_type",
            HeadPart::NoSniff => "x_content_type_options",
            HeadPart::ContentLength => "content_length",
            HeadPart::ContentEncoding => "content_encoding",
            HeadPart::ETag => "etag",
            HeadPart::LastModified => "last_modified",
            HeadPart::CacheControl => "cache_control",
            HeadPart::Vary => "vary",
            HeadPart::Other => "other",
            HeadPart::End => "end",
        }
    }

    /// Which part a line of one of our own heads is.
    fn of(line: &[u8]) -> HeadPart {
        let colon = line.iter().position(|&byte| byte == b':');
        match &line[..colon.unwrap_or(0)] {
            b"" if line.starts_with(b"HTTP/") => HeadPart::Status,
            b"" => HeadPart::End,
            b"Server" => HeadPart::Server,
            b"Date" => HeadPart::Date,
            b"Connection" => HeadPart::Connection,
            b"Content-Type" => HeadPart::ContentType,
            b"X-Content-Type-Options" => HeadPart::NoSniff,
            b"Content-Length" => HeadPart::ContentLength,
            b"Content-Encoding" => HeadPart::ContentEncoding,
            b"ETag" => HeadPart::ETag,
            b"Last-Modified" => HeadPart::LastModified,
            b"Cache-Control" => HeadPart::CacheControl,
            b"Vary" => HeadPart::Vary,
            name if name.starts_with(b"Access-Control-") => HeadPart::Cors,
            _ => HeadPart::Other,
        }
    }
}

/// The lines of a head that was made here, or of some fields of one: each with its line end, and
/// with what it is.
pub fn head_lines(lines: &[u8]) -> impl Iterator<Item = (HeadPart, &[u8])> {
    lines.split_inclusive(|&byte| byte == b'\n').map(|line| (HeadPart::of(line), line))
}

/// How many bytes of some lines of a head are which part, each at the place of its number. No head
/// is as long as 64 KiB.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct HeadShares(pub [u16; HEAD_PARTS]);

impl HeadShares {
    /// Those of some lines of a head that was made here.
    pub fn of(lines: &[u8]) -> HeadShares {
        let mut shares = HeadShares::default();
        for (part, line) in head_lines(lines) {
            shares.0[part as usize] += line.len() as u16;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_head_is_of_one_part() {
        let head = b"HTTP/1.1 200 OK\r\nServer: Stentor\r\nContent-Type: text/plain\r\nVary: A\r\n\
                     ETag: \"a:b\"\r\nVary: B\r\nX-Accel-Buffering: no\r\n\
                     Access-Control-Allow-Origin: *\r\n\r\n";
        let shares = HeadShares::of(head);
        let all: u16 = shares.0.iter().sum();
        assert_eq!(usize::from(all), head.len());
        for (part, bytes) in [
            (HeadPart::Status, 17),
            (HeadPart::Server, 17),
            (HeadPart::Date, 0),
            (HeadPart::ContentType, 26),
            (HeadPart::Vary, 18),
            (HeadPart::ETag, 13),
            (HeadPart::Other, 23),
            (HeadPart::Cors, 32),
            (HeadPart::End, 2),
        ] {
            assert_eq!(shares.0[part as usize], bytes, "{part:?}");
        }
    }

    #[test]
    fn parts_stand_at_the_places_of_their_numbers_and_have_names_of_their_own() {
        for (at, part) in HeadPart::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, at);
            let same = HeadPart::ALL.into_iter().filter(|other| other.name() == part.name());
            assert_eq!(same.count(), 1, "{part:?}");
        }
    }
}
