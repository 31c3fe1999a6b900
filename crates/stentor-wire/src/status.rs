//! The status codes Stentor sends.
//!
//! One table holds code, name and reason phrase, and from it come the constants and the complete
//! status lines, so that an answer never formats a number.

/// A status code of RFC 9110 section 15. The constants are all that Stentor sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal)*) => {
        impl Status {
            $(
                #[doc = concat!("`", $code, " ", $reason, "`")]
                pub const $name: Status = Status($code);
            )*

            /// The reason phrase; that of 500 for a code that is not among the constants.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => Status::INTERNAL_SERVER_ERROR.reason(),
                }
            }

            /// The whole status line (RFC 9112 section 4) with its CRLF; that of 500 for a code
            /// that is not among the constants.
            pub fn line(self) -> &'static [u8] {
                match self.0 {
                    $($code => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes(),)*
                    _ => Status::INTERNAL_SERVER_ERROR.line(),
                }
            }

            #[cfg(test)]
            const ALL: &[Status] = &[$(Status::$name,)*];
        }
    };
}

statuses! {
    100 CONTINUE "Continue"
    101 SWITCHING_PROTOCOLS "Switching Protocols"
    200 OK "OK"
    201 CREATED "Created"
    202 ACCEPTED "Accepted"
    204 NO_CONTENT "No Content"
    206 PARTIAL_CONTENT "Partial Content"
    301 MOVED_PERMANENTLY "Moved Permanently"
    304 NOT_MODIFIED "Not Modified"
    307 TEMPORARY_REDIRECT "Temporary Redirect"
    400 BAD_REQUEST "Bad Request"
    401 UNAUTHORIZED "Unauthorized"
    403 FORBIDDEN "Forbidden"
    404 NOT_FOUND "Not Found"
    405 METHOD_NOT_ALLOWED "Method Not Allowed"
    406 NOT_ACCEPTABLE "Not Acceptable"
    408 REQUEST_TIMEOUT "Request Timeout"
    409 CONFLICT "Conflict"
    410 GONE "Gone"
    411 LENGTH_REQUIRED "Length Required"
    412 PRECONDITION_FAILED "Precondition Failed"
    413 CONTENT_TOO_LARGE "Content Too Large"
    414 URI_TOO_LONG "URI Too Long"
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type"
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable"
    417 EXPECTATION_FAILED "Expectation Failed"
    421 MISDIRECTED_REQUEST "Misdirected Request"
    426 UPGRADE_REQUIRED "Upgrade Required"
    429 TOO_MANY_REQUESTS "Too Many Requests"
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large"
    500 INTERNAL_SERVER_ERROR "Internal Server Error"
    501 NOT_IMPLEMENTED "Not Implemented"
    503 SERVICE_UNAVAILABLE "Service Unavailable"
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported"
    507 INSUFFICIENT_STORAGE "Insufficient Storage"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_agrees_with_its_code_and_reason() {
        for status in Status::ALL {
            let line = format!("HTTP/1.1 {} {}\r\n", status.0, status.reason());
            assert_eq!(status.line(), line.as_bytes());
        }
        assert_eq!(Status::NOT_FOUND.line(), b"HTTP/1.1 404 Not Found\r\n");
    }

    #[test]
    fn an_unknown_code_is_sent_as_500() {
        assert_eq!(Status(299).line(), Status::INTERNAL_SERVER_ERROR.line());
        assert_eq!(Status(299).reason(), "Internal Server Error");
    }
}
