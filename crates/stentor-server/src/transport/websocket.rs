//! WebSocket (RFC 6455): the handshake. What is said afterwards is in `connection/websocket.rs`.

use crate::config::Cors;
use crate::context::{CONTROL, Exchange};
use crate::route::Next;
use crate::stream::{Gap, Opening, Reader, Start, Transport};
use crate::transport::Wanted;
use stentor_hub::Id;
use stentor_wire::http1::{Head, Method, Version};
use stentor_wire::status::Status;
use stentor_wire::websocket::{self, Opcode};

/// Where a WebSocket is sent back what it sends: on the control listener, to try proxies with.
pub(crate) const ECHO: &[u8] = b"/-/echo";

/// Whether a request asks for a WebSocket. Another protocol is not switched to, and the request is
/// answered as if it had not asked (RFC 9110 section 7.8).
pub(crate) fn is_asked_for(head: &Head<'_>) -> bool {
    let named = |upgrade: &[u8]| {
        upgrade
            .split(|&byte| byte == b',')
            .any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    };
    head.method == Method::Get && head.upgrade.is_some_and(named)
}

/// Switches to WebSocket, if the request is a good one (RFC 6455 section 4.2).
pub(crate) fn open(
    x: &mut Exchange<'_>,
    head: &Head<'_>,
    path: &[u8],
    query: Option<&[u8]>,
) -> Next {
    if head.websocket_version != Some(b"13") {
        let reason = "Only version 13 of WebSocket is spoken here (RFC 6455).";
        let fields = b"Sec-WebSocket-Version: 13\r\n";
        x.reply.refuse_with(Status::UPGRADE_REQUIRED, fields, reason);
        return Next::Answered;
    }
    let proof = head.websocket_key.and_then(websocket::accept);
    let (Some(proof), Version::Http11) = (proof, head.version) else {
        let reason = "Sec-WebSocket-Key must be sent: 16 bytes in base64.";
        x.reply.refuse(Status::BAD_REQUEST, reason);
        return Next::Answered;
    };
    if let Some(origin) = head.origin
        && !may_read(origin, head.host, &x.settings.cors, x.reply.shape.role == CONTROL)
    {
        let reason = "Pages of this origin may not read here (cors.origins).";
        x.reply.refuse(Status::FORBIDDEN, reason);
        return Next::Answered;
    }
    let echoes = path == ECHO;
    let wanted = if echoes { Ok(None) } else { Wanted::of(x, head, path, query).map(Some) };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(refused) => return x.refuse_stream(refused),
    };
    let many = wanted.as_ref().is_some_and(|wanted| wanted.is_enveloped);
    let commands = many && websocket::offers_protocol(head.websocket_protocol, PROTOCOL);
    let deflate = websocket::negotiate_deflate(head.websocket_extensions);
    let mut fields = Vec::with_capacity(FIELDS_BYTES_USUAL);
    fields
        .extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ");
    fields.extend_from_slice(&proof);
    fields.extend_from_slice(b"\r\n");
    if commands {
        fields.extend_from_slice(b"Sec-WebSocket-Protocol: ");
        fields.extend_from_slice(PROTOCOL.as_bytes());
        fields.extend_from_slice(b"\r\n");
    }
    if let Some(deflate) = &deflate {
        fields.extend_from_slice(b"Sec-WebSocket-Extensions: ");
        deflate.write_response(&mut fields);
        fields.extend_from_slice(b"\r\n");
    }
    x.reply.switch(&fields);
    let reader = Reader {
        commands,
        window_bits: deflate.map_or(0, |deflate| deflate.server_window_bits),
        ..Reader::new(if echoes { Transport::Echo } else { Transport::WebSocket })
    };
    match wanted {
        Some(wanted) => wanted.open(reader, None),
        None => {
            let (filters, start) = (Vec::new(), Start::Values);
            Next::Stream(Box::new(Opening { reader, filters, start, held: None }))
        }
    }
}

/// Whether a page of `origin` may read: one of this very host, or one that is listed. The control
/// listener is for nobody's pages but its own.
fn may_read(origin: &[u8], host: Option<&[u8]>, cors: &Cors, is_control: bool) -> bool {
    let own = || {
        let name = memchr::memmem::find(origin, b"://").map(|at| &origin[at + 3..]);
        name.is_some() && name == host
    };
    own() || !is_control && (cors.allows_any() || cors.lists(origin))
}

/// The frame that says that something is missing.
pub(crate) fn gap(out: &mut Vec<u8>, gap: &Gap) {
    websocket::frame(out, Opcode::Text, false, gap.object().as_bytes());
}

/// The frame that says from where the reader may resume.
pub(crate) fn cursor(out: &mut Vec<u8>, id: Id) {
    let json = format!("{{\"cursor\":\"{id}\"}}");
    websocket::frame(out, Opcode::Text, false, json.as_bytes());
}

/// The subprotocol by which a client subscribes and unsubscribes while connected.
const PROTOCOL: &str = "stentor.v1";

const FIELDS_BYTES_USUAL: usize = 256;
