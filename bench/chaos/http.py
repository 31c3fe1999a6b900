"""As much of HTTP as the checker speaks: a request on a connection of its own, and streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass


class Gone(Exception):
    """There is no answer: the request may have been heard."""


class Silent(Gone):
    """Nobody said anything for as long as the client was patient."""


@dataclass
class Answer:
    status: int
    fields: dict[str, str]
    body: bytes


def head_of(method: str, path: str, fields: dict[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close",
             *(f"{name}: {value}" for name, value in fields.items())]
    if method in ("PUT", "POST"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def parse(head: bytes) -> Answer:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) < 2 or not words[1].isdigit():
        raise Gone(f"no answer, but {first!r}")
    pairs = (line.partition(":") for line in lines if line)
    return Answer(int(words[1]), {name.lower(): value.strip() for name, _, value in pairs}, b"")


async def ask(port: int, method: str, path: str, fields: dict[str, str] | None = None,
              body: bytes = b"", patience: float = 10) -> Answer:
    """Raises Gone."""
    writer = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
            writer.write(head_of(method, path, fields or {}, body))
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            answer = parse(head)
            if len(body) != int(answer.fields.get("content-length", len(body))):
                raise Gone("the answer is not whole")
            answer.body = body
            return answer
    except TimeoutError as error:
        raise Silent(f"nothing for {patience} s") from error
    except OSError as error:
        raise Gone(repr(error)) from error
    finally:
        if writer:
            writer.transport.abort()


async def events(port: int, path: str, fields: dict[str, str]) -> AsyncIterator[dict[str, str]]:
    """The blocks of a stream, until it ends. Raises Gone if it never began."""
    writer = None
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            fields = {"Accept": "text/event-stream", **fields}
            writer.write(head_of("GET", path, fields, b""))
            answer = parse((await reader.readuntil(b"\r\n\r\n"))[:-4])
        # Whoever is told to come again gets a stream that is over: with a length.
        if answer.status != 200 or "content-length" in answer.fields:
            raise Gone(f"status {answer.status}")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                block = await reader.readuntil(b"\n\n")
                pairs = (line.partition(": ") for line in block.decode().split("\n") if line)
                yield {name: value for name, _, value in pairs}
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise Gone(repr(error)) from error
    finally:
        if writer:
            writer.transport.abort()
