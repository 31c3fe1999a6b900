//! The handshake: the examples of RFC 6455, and tables of what clients offer.

use super::*;

#[test]
fn keys_are_answered_as_in_the_example() {
    assert_eq!(
        accept(b"dGhlIHNhbXBsZSBub25jZQ==").as_ref(),
        Some(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "RFC 6455 section 1.3"
    );
    let another = accept(b"x3JJHMbDL1EzLkh9GBhXDw==");
    assert_eq!(another.as_ref(), Some(b"HSmrc0sMlYUkAGmm5OPpG2HaGWk="));
}

#[test]
fn a_key_is_sixteen_bytes() {
    for key in [
        "",
        "=",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ===",
        " dGhlIHNhbXBsZSBub25jZQ==",
        "dGhlIHNhbXBsZSBub25jZQ==\n",
        "dGhlIHNhbXBsZSBub25j",
        "dGhlIHNhbXBsZSBub25jZXM=",
        "dGhlIHNhbXBsZSBub25jZXN0",
        "dGhlIHNhbXBsZSBub25jZXN0dGhlIHNhbXBsZSBub25jZXN0",
        "dGhlIHNhbXBsZSBub25j_Q==",
        "SGVsbG8sIHdvcmxkIQ==",
    ] {
        assert_eq!(accept(key.as_bytes()), None, "{key}");
    }
}

#[test]
fn protocols_are_listed() {
    for header in ["stentor.v1", "chat, stentor.v1", "a,\tstentor.v1 ,b"] {
        assert!(offers_protocol(Some(header.as_bytes()), "stentor.v1"), "{header}");
    }
    for header in ["", "stentor.v2", "Stentor.v1", "stentor.v1x", "a stentor.v1", "\"stentor.v1\""]
    {
        assert!(!offers_protocol(Some(header.as_bytes()), "stentor.v1"), "{header}");
    }
    assert!(!offers_protocol(None, "stentor.v1"));
}
