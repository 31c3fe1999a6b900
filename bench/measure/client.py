"""The HTTP client of all measurements: requests as bytes, requests with their answers, publishers,
and streams for many readers on one thread.

An answer that is not a success ends a measurement, unless the caller asks for the status.
"""

import asyncio
import contextlib
import http.client
import io
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from email.message import Message
from itertools import islice

from .bench import MeasurementError

LINES = 20_000
NDJSON = {"Content-Type": "application/x-ndjson"}
PATIENCE_SECONDS = 60

FAR_RECEIVE_BYTES = 4_096
FAR_SEGMENT_BYTES = 1_460
IP_BIND_ADDRESS_NO_PORT = 24
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


# ---- Requests as bytes ----


def get(path: str, *fields: str) -> bytes:
    lines = "".join(f"{field}\r\n" for field in ("Host: 127.0.0.1", *fields))
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


def stream(path: str, *fields: str) -> bytes:
    return get(path, "Accept: text/event-stream", *fields)


def websocket(path: str, commands: bool = False, deflate: bool = False) -> bytes:
    fields = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    if commands:
        fields.append("Sec-WebSocket-Protocol: stentor.v1")
    if deflate:
        fields.append("Sec-WebSocket-Extensions: permessage-deflate; "
                      "client_no_context_takeover; server_no_context_takeover")
    return get(path, *fields)


def be_far(unconnected: socket.socket) -> None:
    """Makes a socket announce what a client far away may."""
    unconnected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FAR_RECEIVE_BYTES)
    unconnected.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, FAR_SEGMENT_BYTES)


# ---- Requests and their answers ----


class Client(http.client.HTTPConnection):
    """One kept connection. The certificate of a server is not checked: it is not what is
    measured."""

    def __init__(self, port: int, scheme: str = "http", timeout: float = PATIENCE_SECONDS,
                 source: str = "") -> None:
        super().__init__("127.0.0.1", port, timeout=timeout,
                         source_address=(source, 0) if source else None)
        self.is_secure = scheme == "https"

    def connect(self) -> None:
        super().connect()
        if self.is_secure:
            self.sock = trusting().wrap_socket(self.sock, server_hostname="127.0.0.1")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: bytes | Iterable[bytes] = b"",
            reads: bool = True, **fields: str) -> tuple[int, Message, bytes]:
        """Status, fields and body of the answer. Parts of a body are sent as chunks."""
        try:
            self.request(method, path, body or None, fields)
            answer = self.getresponse()
            return answer.status, answer.headers, answer.read() if reads else b""
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise MeasurementError(f"{method} {path} at port {self.port}: {error}") from error

    def succeed(self, method: str, path: str, body: bytes | Iterable[bytes] = b"",
                **fields: str) -> tuple[int, bytes]:
        """Status and body of an answer that must be one of success."""
        status, _, text = self.ask(method, path, body, **fields)
        if not 200 <= status < 300:
            raise MeasurementError(f"{method} {path} at port {self.port}: {status} {text[:200]!r}")
        return status, text

    def read(self, path: str, **fields: str) -> bytes:
        return self.succeed("GET", path, **fields)[1]

    def put(self, topic: str, value: bytes, **fields: str) -> int:
        return self.succeed("PUT", topic, value, **{"Content-Type": "text/plain", **fields})[0]


def trusting() -> ssl.SSLContext:
    """A client that believes whatever it is shown."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask(port: int, method: str, path: str, body: bytes = b"", timeout: float = 10,
        source: str = "", reads: bool = True, **fields: str) -> tuple[int, Message, bytes]:
    """One request on a connection of its own."""
    with Client(port, timeout=timeout, source=source) as client:
        return client.ask(method, path, body, reads, **fields)


def status(control_port: int) -> dict:
    """The server's `/-/status`."""
    with Client(control_port) as client:
        return json.loads(client.read("/-/status"))


def publish_value(port: int, topic: str, value: bytes, content_type: str = "text/plain") -> str:
    """Publishes a value, and returns its id."""
    with Client(port) as client:
        answer = client.succeed("PUT", topic, value, **{"Content-Type": content_type})[1]
    return str(json.loads(answer)["id"])


def publish_many(port: int, values: Iterable[tuple[str, str]]) -> None:
    """Publishes (topic, text) pairs, so many in a request."""
    lines = (json.dumps({"topic": topic, "data": data}) + "\n" for topic, data in values)
    while batch := "".join(islice(lines, LINES)):
        publish_lines(port, batch.encode())


def publish_lines(port: int, lines: bytes) -> None:
    with Client(port) as client:
        client.succeed("POST", "/-/publish", lines, **NDJSON)


# ---- Answers as bytes ----


class Received:
    """Bytes that were received, in place of a socket, for `http.client` to take apart."""

    def __init__(self, received: bytes) -> None:
        self.makefile = lambda _: io.BytesIO(received)


def parse(received: bytes) -> http.client.HTTPResponse:
    """The answer that these bytes begin with. Raises what `http.client` does."""
    answer = http.client.HTTPResponse(Received(received))
    answer.begin()
    return answer


def raw(port: int, request: bytes, scheme: str = "http") -> bytes:
    """A whole answer exactly as it came, which must be one of success with a length."""
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            connection = plain
            if scheme == "https":
                connection = trusting().wrap_socket(plain, server_hostname="127.0.0.1")
            connection.sendall(request)
            while b"\r\n\r\n" not in received or not is_whole(received):
                if not (more := connection.recv(65536)):
                    raise MeasurementError(f"port {port}: the end after {received[:200]!r}")
                received += more
    except (OSError, http.client.HTTPException) as error:
        raise MeasurementError(f"port {port}: {request[:80]!r}: {error}") from error
    if not received.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
        raise MeasurementError(f"port {port}: {request[:80]!r}: {received[:80]!r}")
    return received


def is_whole(received: bytes) -> bool:
    length = parse(received).length or 0
    return len(received.partition(b"\r\n\r\n")[2]) >= length


# ---- For many clients on one thread ----


class Gone(Exception):
    """There is no answer: the request may have been heard."""


class Silent(Gone):
    """Nothing came for as long as the client was patient."""


@dataclass
class Answer:
    status: int
    fields: Message
    body: bytes


def head_of(method: str, path: str, fields: dict[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close",
             *(f"{name}: {value}" for name, value in fields.items())]
    if method in ("PUT", "POST"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def ask_soon(port: int, method: str, path: str, fields: dict[str, str] | None = None,
                   body: bytes = b"", patience: float = 10) -> Answer:
    """One request on a connection of its own. Raises Gone."""
    writer = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
            writer.write(head_of(method, path, fields or {}, body))
            answer = parse(await reader.read(-1))
            return Answer(answer.status, answer.headers, answer.read())
    except TimeoutError as error:
        raise Silent(f"nothing for {patience} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise Gone(f"no answer: {error!r}") from error
    finally:
        if writer:
            writer.transport.abort()


async def events(port: int, path: str, fields: dict[str, str]) -> AsyncIterator[dict[str, str]]:
    """The events of a stream, until it ends. Raises Gone if it never began. The lines that begin
    and end chunks have no name, and do no harm."""
    writer = None
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            fields = {"Accept": "text/event-stream", **fields}
            writer.write(head_of("GET", path, fields, b""))
            answer = parse(await reader.readuntil(b"\r\n\r\n"))
        # A server that ends answers with an empty stream, which has a length.
        if answer.status != 200 or "Content-Length" in answer.headers:
            raise Gone(f"status {answer.status}")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                block = await reader.readuntil(b"\n\n")
                pairs = (line.partition(": ") for line in block.decode().split("\n") if line)
                yield {name: value for name, _, value in pairs}
    except (OSError, TimeoutError, asyncio.IncompleteReadError,
            http.client.HTTPException) as error:
        raise Gone(repr(error)) from error
    finally:
        if writer:
            writer.transport.abort()
