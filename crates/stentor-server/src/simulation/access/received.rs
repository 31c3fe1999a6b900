//! The oracle searches the bytes that a client has received.

/// The names that the server says it leaves out.
pub(super) fn left_out(input: &[u8]) -> Vec<&str> {
    let lists = memchr::memmem::find_iter(input, LEFT_OUT);
    let lists =
        lists.flat_map(|at| input[at + LEFT_OUT.len()..].split(|&byte| byte == b']').next());
    let names = lists.flat_map(|list| list.split(|&byte| byte == b'"').skip(1).step_by(2));
    names.map(|name| std::str::from_utf8(name).unwrap()).collect()
}

const LEFT_OUT: &[u8] = b"{\"access\":{\"denied\":[";

/// All marks that stand in what was received.
pub(super) fn marks(bytes: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut pieces = bytes.split(|&byte| byte == b'#');
    pieces.next();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        // The last mark may not be whole yet.
        let is_closed = pieces.peek().is_some();
        let digits = std::str::from_utf8(piece).ok().and_then(|text| text.parse().ok());
        if let Some(mark) = digits.filter(|_| is_closed) {
            found.push(mark);
        }
    }
    found
}

pub(super) fn status_of(input: &[u8]) -> Option<u16> {
    let text = input.strip_prefix(b"HTTP/1.1 ")?;
    memchr::memmem::find(input, b"\r\n\r\n")?;
    std::str::from_utf8(&text[..3]).ok()?.parse().ok()
}

/// Whether a topic is named, and not only one below it; what comes next says which.
pub(super) fn names(input: &[u8], topic: &str) -> bool {
    let mut places = memchr::memmem::find_iter(input, topic);
    places.any(|at| input.get(at + topic.len()).is_some_and(|&next| next != b'/'))
}

pub(super) fn contains(input: &[u8], text: &str) -> bool {
    memchr::memmem::find(input, text.as_bytes()).is_some()
}
