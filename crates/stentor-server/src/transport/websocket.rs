//! WebSocket (RFC 6455): the handshake. Its frames are read in
//! `connection/reader/websocket.rs`.

use crate::access::{Act, Bearer, Denied};
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::paths::{ECHO, EVENTS};
use crate::stream::format::Transport;
use crate::stream::{Opening, ReaderTraits, Start};
use crate::transport::Wanted;
use stentor_hub::Mode;
use stentor_wire::http1::{Method, Request};
use stentor_wire::rejections;
use stentor_wire::websocket;

/// Whether a request asks for a WebSocket.
pub(crate) fn is_asked_for(request: &Request<'_>) -> bool {
    request.method == Method::Get && request.upgrade.is_some()
}

/// Switches to WebSocket, if the request is a good one (RFC 6455 section 4.2).
pub(crate) fn open(
    x: &mut Exchange<'_>,
    request: &Request<'_>,
    path: &[u8],
    query: Option<&[u8]>,
) -> Answer {
    if request.websocket_version != Some(b"13") {
        let head = x.reply.begin(OTHER_VERSION.status());
        head.field(Field::WEBSOCKET_VERSION, "13").reject(&OTHER_VERSION);
        return Answer::Now;
    }
    let Some(proof) = request.websocket_key.and_then(websocket::accept) else {
        return x.reject(&NO_KEY);
    };
    if let Err(denied) = x.may(Act::Connect(request)) {
        return x.deny(&denied);
    }
    let commands =
        path == EVENTS && websocket::offers_protocol(request.websocket_protocol, PROTOCOL);
    let wanted = match path {
        ECHO => Ok(None),
        _ if commands => Wanted::of(x, request, path, query).map(Some),
        _ => Wanted::of_some(x, request, path, query).map(Some),
    };
    let mut wanted = match wanted {
        Ok(wanted) => wanted.map(|wanted| wanted.under_pressure(x)),
        Err(refused) => return x.refuse_stream(request, refused),
    };
    if commands && let Err(denied) = keep_token(x, &mut wanted) {
        return x.deny(&denied);
    }
    let deflate = websocket::negotiate_deflate(request.websocket_extensions);
    let extension = deflate.as_ref().map(|deflate| {
        let mut value = Vec::new();
        deflate.write_response(&mut value);
        (Field::WEBSOCKET_EXTENSIONS, value)
    });
    x.reply
        .switch("websocket")
        .field(Field::WEBSOCKET_ACCEPT, proof)
        .fields(commands.then_some((Field::WEBSOCKET_PROTOCOL, PROTOCOL)))
        .fields(extension)
        .end();
    let window_bits = deflate.map_or(0, |deflate| deflate.server_window_bits);
    let mut opening = match wanted {
        Some(wanted) => wanted.opening(Transport::WebSocket),
        None => Box::new(Opening {
            traits: ReaderTraits::new(Transport::Echo, Mode::ByRule, false),
            cursor: 0,
            filters: Vec::new(),
            start: Start::Values,
            grant: None,
            part: Vec::new(),
            access: None,
        }),
    };
    opening.traits.set_socket(window_bits, commands);
    Answer::Stream(opening)
}

/// What is subscribed to later may take the token that came first.
fn keep_token(x: &Exchange<'_>, wanted: &mut Option<Wanted>) -> Result<(), Denied> {
    if let Bearer::Bad(refused) = x.requester.bearer {
        return Err(Denied::bad_token(refused));
    }
    if let Some(wanted) = wanted {
        wanted.sight.grant = x.visitor().grant().cloned();
    }
    Ok(())
}

/// The subprotocol by which a client subscribes and unsubscribes while connected.
const PROTOCOL: &str = "stentor.v1";

rejections! {
    OTHER_VERSION: WebsocketVersion =
        "Only version 13 of WebSocket is spoken here (RFC 6455).";
    NO_KEY: WebsocketKeyInvalid = "Sec-WebSocket-Key must be sent: 16 bytes in base64.";
}
