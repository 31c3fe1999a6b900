//! What a response head consists of: how many of its bytes are which field.
//!
//! A byte in a head is paid for with every answer. So that its price can be shown, heads are taken
//! apart here, once when they are made, or line by line if they are made for a single answer.

/// Makes the parts from one list, in the order of their numbers. A row has the label of the part in
/// figures, and the name of its field if it has only one.
macro_rules! parts {
    ($($(#[$meaning:meta])* $part:ident: $label:literal $($field:literal)?,)*) => {
        crate::labels! {
            /// A part of a response head: its first line, one of its fields, or the empty line at
            /// its end.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(u8)]
            pub enum HeadPart {
                $($(#[$meaning])* $(#[doc = $field])? $part = $label,)*
            }
        }

        impl HeadPart {
            /// Which part a line of one of our own heads is.
            fn of(line: &[u8]) -> HeadPart {
                let colon = line.iter().position(|&byte| byte == b':');
                let name = &line[..colon.unwrap_or(0)];
                $($(if name == $field.as_bytes() {
                    return HeadPart::$part;
                })?)*
                match name {
                    b"" if line.starts_with(b"HTTP/") => HeadPart::Status,
                    b"" => HeadPart::End,
                    name if name.starts_with(b"Access-Control-") => HeadPart::Cors,
                    _ => HeadPart::Other,
                }
            }
        }
    };
}

parts! {
    /// The status line.
    Status: "status_line",
    Server: "server" "Server",
    Date: "date" "Date",
    Connection: "connection" "Connection",
    /// The fields of the CORS protocol, `Access-Control-…`.
    Cors: "access_control",
    ContentType: "content_type" "Content-Type",
    NoSniff: "x_content_type_options" "X-Content-Type-Options",
    ContentLength: "content_length" "Content-Length",
    ContentEncoding: "content_encoding" "Content-Encoding",
    ETag: "etag" "ETag",
    LastModified: "last_modified" "Last-Modified",
    CacheControl: "cache_control" "Cache-Control",
    Vary: "vary" "Vary",
    /// Any other field.
    Other: "other",
    /// The empty line.
    End: "end",
}

/// How many parts there are.
pub const HEAD_PARTS: usize = HeadPart::ALL.len();

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
    fn parts_have_names_of_their_own() {
        for part in HeadPart::ALL {
            let same = HeadPart::ALL.into_iter().filter(|other| other.name() == part.name());
            assert_eq!(same.count(), 1, "{part:?}");
        }
    }

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
}
