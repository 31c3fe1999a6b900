"""The attacks: each a class, found by its name. A new finding is one more class here.

What an attack is made of is told at `Attack`; `bench/README.md` says how to add one.
"""

import contextlib
import gzip
import itertools
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attacker import (
    ADDRESSES,
    BYTES_PER_SECOND,
    CUT,
    OPEN,
    OPENED,
    SENT,
    Attacker,
    Connection,
    address,
    deflated_frame,
    frame,
)
from bystanders import TOPIC, VALUE
from measure.bench import OUT_DIR, MeasurementError
from measure.client import Client, ask, be_far, get, stream, trusting, websocket
from tls import KEY_UPDATE_BYTES, Session, hello

if TYPE_CHECKING:
    from attack import Stage

KB = 1_000
MIB = 1 << 20
MANY = 10_000
READERS_MIB = 64
"""What attacks on the memory that readers hold let those of one worker hold: half of the default,
so that the bound is met within the attack."""

READERS_CONFIG = f"""\
[limits]
readers_bytes_max = "{READERS_MIB} MiB"
"""


class Publisher(Client):
    """An honest publisher on the control listener, in a process of its own."""

    def put(self, topic: str, value: bytes, **fields: str) -> None:
        """Publishes. After a failure the next message opens a new connection."""
        with contextlib.suppress(MeasurementError):
            super().put(topic, value, **fields)

    def steps(self, per_second: float) -> Iterator[int]:
        """For ever, since it is ended from outside; what it could not do in time is left out."""
        due = time.monotonic()
        for step in itertools.count():
            yield step
            due = max(due + 1 / per_second, time.monotonic() - 1)
            time.sleep(max(due - time.monotonic(), 0))


class Attack:
    """One finding. The first line of a class's docstring says what it exploits.

    `prepare` makes what is there before it, in the driver. `strike` is the attack, in a process of
    its own with nothing but the public listener. `company` is honest publishing without which the
    attack would be none, in a process of its own too; it begins before bystanders are measured in
    quiet, so that only the attack is what differs. All of it goes on until `over`.
    """

    settings_mib = 0
    """Memory that the settings allow an attack like this to take."""

    stays_mib = 0
    """Of that, what rightly stays afterwards, as a cache does."""

    kept_bytes_max = 0
    """If set, the memory at its end, above that of an empty server, for each message kept."""

    config = ""
    """The server's settings, if not the default ones."""

    over_tls = False
    """It strikes a listener that speaks TLS; the bystanders have one in the clear."""

    files_max: int | None = None
    """The server's limit of open files, if not the host's."""

    tcp_limit_mib: int | None = None
    """If set, the server takes the limit of TCP memory to be so far above what is in use at its
    start. The kernel's own limit stays as it is."""

    files: dict[str, int] = {}
    """Names of texts to serve, with their bytes."""

    messages_per_second = 10
    """How often the bystanders' topic is published to."""

    rate = BYTES_PER_SECOND
    newcomers_judged = False
    """Whether all newcomers must be let in, too: not where all there is room for are there."""

    tcp_memory_judged = False

    def prepare(self, stage: "Stage") -> None:
        pass

    sockets = 30
    opening = get(VALUE)

    def requests(self, attacker: Attacker) -> list[bytes]:
        """What connections of the default attack send."""
        raise NotImplementedError

    def strike(self, attacker: Attacker) -> None:
        """By default some connections send the same over and over, behind `opening`."""
        floods = self.requests(attacker)
        for connection in attacker.keep(self.sockets, self.opening, 0.001):
            attacker.send(connection, floods[connection.number % len(floods)])

    company: Callable[["Attack", "Publisher"], None] | None = None

    probe: Callable[["Attack", "Stage"], bool] | None = None
    """Asked every second while the attack goes on, and by a thread of its own: whether something
    an honest client does is answered as it should be."""

    @classmethod
    def name(cls) -> str:
        """DeflateKept is deflate-kept."""
        letters = (f"-{c.lower()}" if c.isupper() else c for c in cls.__name__)
        return "".join(letters).removeprefix("-")

    @classmethod
    def summary(cls) -> str:
        return (cls.__doc__ or "").strip().splitlines()[0]


def text(length: int, seed: int = 0) -> str:
    """Digits: text that is compressed to about half."""
    return random.Random(seed).randbytes((length + 1) // 2).hex()[:length]


def publish_many(stage: "Stage", topics: list[str], data: Callable[[int], str],
                 each: int = 1) -> None:
    """`each` messages to every topic, in bulk."""
    for turn in range(each):
        stage.server.put_many((topic, data(turn)) for topic in topics)


# ---- 1: what is kept compressed ----


class DeflateKept(Attack):
    """Messages of 1 KB that are kept are sent to one WebSocket that offers to deflate."""

    kept_bytes_max = 4 * 1024

    def company(self, publisher: Publisher) -> None:
        for step in publisher.steps(400):
            publisher.put(f"/deflate/{step % MANY}", text(KB, step).encode())

    def strike(self, attacker: Attacker) -> None:
        attacker.hold(1, lambda _: websocket("/-/events?topic=/deflate/*", deflate=True))


class GzipPutKept(Attack):
    """Messages of 1 KB that are kept were published with Content-Encoding: gzip."""

    kept_bytes_max = 4 * 1024

    def company(self, publisher: Publisher) -> None:
        for step in publisher.steps(400):
            publisher.put(f"/gzip/{step % MANY}", gzip.compress(text(KB, step).encode()),
                          **{"Content-Encoding": "gzip"})

    def strike(self, attacker: Attacker) -> None:
        attacker.hold(1, lambda _: stream("/-/events?topic=/gzip/*"))


# ---- 2: inflating ----


class Inflate(Attack):
    """Frames of 64 KB made of empty deflate blocks, each of which resets the decompressor."""

    sockets = 8
    opening = websocket("/-/events", commands=True, deflate=True)

    def requests(self, attacker: Attacker) -> list[bytes]:
        return [frame(b"\x03\x00" * 32_000, deflated=True)]


# ---- 3: descriptors ----


class Descriptors(Attack):
    """As many connections as a worker may have files, from as many addresses as they need."""

    files_max = 5_000

    def strike(self, attacker: Attacker) -> None:
        silent = stream("/attack/nothing")
        idle = get(VALUE)
        attacker.hold(6_000, lambda number: silent if number % 2 else idle)


# ---- 4: replays ----


class ReplayAll(Attack):
    """140 bytes ask for every message of every topic; half of those who ask are gone at once."""

    PER_SECOND = 100

    def prepare(self, stage: "Stage") -> None:
        topics = [f"/replay/{number}" for number in range(MANY)]
        publish_many(stage, topics, lambda turn: f"message {turn} of the history", each=32)
        self.cursor = f"{stage.status()['epoch']}-1"

    def strike(self, attacker: Attacker) -> None:
        request = stream(f"/-/events?topic=/**&mode=all&since={self.cursor}")
        asked: list[Connection] = []
        for step in attacker.steps(self.PER_SECOND):
            connection = attacker.open(request, reads=False)
            if not connection:
                continue
            if step % 2:
                attacker.rest(0.002)
                attacker.drop(connection, was_cut=False, reset=True)
            else:
                asked.append(connection)
            if len(asked) > 500:
                attacker.drop(asked.pop(0), was_cut=False, reset=True)


class ResumeStorm(Attack):
    """500 readers of one pattern of 50,000 topics come back together, 10 messages behind."""

    READERS = 500
    EVERY_SECONDS = 3
    TOPICS = 50_000

    def prepare(self, stage: "Stage") -> None:
        topics = [f"/q/{number}" for number in range(self.TOPICS)]
        publish_many(stage, topics, lambda _: "100.25")

    def company(self, publisher: Publisher) -> None:
        for step in publisher.steps(20):
            publisher.put("/q/0" if step % 2 else f"/q/{step * 7919 % self.TOPICS}", b"100.50")

    def strike(self, attacker: Attacker) -> None:
        while not attacker.over:
            epoch, number = tag_of(attacker.port, "/q/0").strip('"').split("-")
            cursor = f"{epoch}-{int(number) - 20}"
            come_and_go(attacker, f"/-/events?topic=/q/*&since={cursor}", self.READERS,
                        self.EVERY_SECONDS)


class ResumeMany(ResumeStorm):
    """15,000 readers of that pattern come back at once, and stay."""

    READERS = 15_000
    EVERY_SECONDS = 3_600


class NewcomersStorm(Attack):
    """500 newcomers at once to one pattern of 5,000 topics with their histories."""

    READERS = 500
    EVERY_SECONDS = 10
    TOPICS = 5_000

    def prepare(self, stage: "Stage") -> None:
        topics = [f"/n/{number}" for number in range(self.TOPICS)]
        publish_many(stage, topics, lambda turn: f"message {turn} of the history", each=32)

    def strike(self, attacker: Attacker) -> None:
        while not attacker.over:
            come_and_go(attacker, "/-/events?topic=/n/*", self.READERS, self.EVERY_SECONDS)


def come_and_go(attacker: Attacker, target: str, readers: int, seconds: float) -> None:
    """So many readers of one stream come together, stay for a while, and are gone at once."""
    for _ in range(readers):
        attacker.open(stream(target))
    attacker.rest(seconds)
    for connection in list(attacker.connections.values()):
        attacker.drop(connection, was_cut=False, reset=True)


def tag_of(port: int, path: str) -> str:
    """The tag of what is answered on the public listener."""
    try:
        return ask(port, "GET", path)[1]["ETag"] or '"00000000-0"'
    except MeasurementError:
        return '"00000000-0"'


def is_answered(port: int, path: str, **fields: str) -> bool:
    """Whether a client that was not there before gets a 200."""
    try:
        return ask(port, "GET", path, source="127.3.0.1", reads=False, **fields)[0] == 200
    except MeasurementError:
        return False


# ---- 5 and 6: names and subscriptions ----


def subscribe(names: list[str]) -> bytes:
    return deflated_frame(json.dumps({"subscribe": names}, separators=(",", ":")).encode())


def subscribers(attacker: Attacker, count: int, commands: Callable[[int], bytes]) -> None:
    """WebSockets that send their commands right behind the handshake, and stay."""
    handshake = websocket("/-/events", commands=True, deflate=True)
    attacker.hold(count, lambda number: handshake + commands(number))


class Names(Attack):
    """1,300 WebSockets read 1,000 topics each that do not exist and have never been named."""

    newcomers_judged = True

    def prepare(self, stage: "Stage") -> None:
        publish_many(stage, [f"/names/{at}" for at in range(1_000)], lambda _: "1")
        self.unread = iter(range(1_000))

    def probe(self, stage: "Stage") -> bool:
        """A newcomer reads a topic that exists and that nobody reads yet."""
        return is_answered(stage.server.port, f"/names/{next(self.unread)}",
                           Accept="text/event-stream")

    def strike(self, attacker: Attacker) -> None:
        filler = "a" * 45

        def commands(number: int) -> bytes:
            return subscribe([f"/none/{filler}/{number}/{at}" for at in range(1_000)])

        subscribers(attacker, 1_300, commands)


class Subscriptions(Attack):
    """2,000 WebSockets name the same 1,000 topics, with names as long as they may be."""

    settings_mib = READERS_MIB
    config = READERS_CONFIG
    NAMES = [f"/long/{'b' * 490}/{at}" for at in range(1_000)]

    def prepare(self, stage: "Stage") -> None:
        publish_many(stage, self.NAMES, lambda _: "1")

    def strike(self, attacker: Attacker) -> None:
        frames = b"".join(subscribe(self.NAMES[at:at + 125]) for at in range(0, 1_000, 125))
        subscribers(attacker, 2_000, lambda _: frames)


# ---- 7: churn ----


class Churn(Attack):
    """Readers join and leave a topic so often published to that its readers are never at rest."""

    messages_per_second = 400

    def strike(self, attacker: Attacker) -> None:
        topic = json.dumps([TOPIC])
        pair = (frame(f'{{"subscribe":{topic}}}'.encode())
                + frame(f'{{"unsubscribe":{topic}}}'.encode()))
        first = websocket("/-/events", commands=True)
        for connection in attacker.keep(20, first, 0.001):
            if connection.head:
                attacker.send(connection, pair * 20)


# ---- 8: patterns ----


class Patterns(Attack):
    """Names of many segments meet all patterns that stars in any of them make."""

    SEGMENTS = (8, 12, 14)

    @staticmethod
    def topic(segments: int) -> str:
        return f"/p{segments}" + "/s" * (segments - 1)

    def company(self, publisher: Publisher) -> None:
        for step in publisher.steps(150):
            publisher.put(self.topic(self.SEGMENTS[step % 3]), b"1")

    def strike(self, attacker: Attacker) -> None:
        frames = []
        for segments in self.SEGMENTS:
            name = self.topic(segments).split("/")[1:]
            patterns = ["".join(f"/{'*' if mask >> at & 1 else part}"
                                for at, part in enumerate(name)) for mask in range(1 << segments)]
            frames += [subscribe(patterns[at:at + 1_000])
                       for at in range(0, len(patterns), 1_000)]
        subscribers(attacker, len(frames), lambda number: frames[number % len(frames)])


# ---- 9: memory that clients pin ----


class Pins(Attack):
    """Clients ask for each new version of a value of 1 MB, and never read it."""

    settings_mib = READERS_MIB
    config = READERS_CONFIG

    def company(self, publisher: Publisher) -> None:
        body = bytes(1_000_000)
        for step in publisher.steps(20):
            publisher.put("/pins/large", str(step).encode() + body)

    def strike(self, attacker: Attacker) -> None:
        for _ in attacker.steps(40):
            attacker.open(get("/pins/large"), reads=False, is_far=True)


class Unread(Attack):
    """1,500 clients ask for 1 MB and do not read it: the kernel holds what was sent."""

    settings_mib = READERS_MIB
    config = READERS_CONFIG
    tcp_memory_judged = True

    def prepare(self, stage: "Stage") -> None:
        stage.server.put("/unread/large", bytes(1_000_000))

    def strike(self, attacker: Attacker) -> None:
        attacker.hold(1_500, lambda _: get("/unread/large"), reads=False)


class TcpMemory(Attack):
    """Twelve clients pipeline GETs of 1 MB and read a little, until TCP memory is used up."""

    tcp_limit_mib = 32
    newcomers_judged = True
    SLOW = 12
    RECEIVE_BYTES = 4 << 20
    READ_BYTES = 1_500
    READ_EVERY_SECONDS = 5
    HISTORY = [f"/tcp/history/{number}" for number in range(100)]

    def prepare(self, stage: "Stage") -> None:
        stage.server.put("/tcp/large", bytes(1_000_000))
        publish_many(stage, self.HISTORY, lambda turn: f"message {turn}", each=10)
        self.history = stage.status()["stored"]["history"]

    def probe(self, stage: "Stage") -> bool:
        """All history is still there. Honest publishing adds to it."""
        stored = stage.status()["stored"]
        return stored["history"] >= self.history and stored["evicted_total"] == 0

    def strike(self, attacker: Attacker) -> None:
        requests = get("/tcp/large") * 20
        while not attacker.over:
            while len(attacker.connections) < self.SLOW:
                attacker.open(requests, reads=False, receive_bytes=self.RECEIVE_BYTES)
            attacker.rest(self.READ_EVERY_SECONDS)
            for connection in list(attacker.connections.values()):
                with contextlib.suppress(OSError):
                    connection.socket.recv(self.READ_BYTES)


class PipelinedLongPoll(Attack):
    """60 KB of requests are sent behind a long-poll that is held; then their senders are gone."""

    settings_mib = READERS_MIB
    config = READERS_CONFIG
    COUNT = 2_000
    rate = 10 * BYTES_PER_SECOND

    def strike(self, attacker: Attacker) -> None:
        behind = get(VALUE)
        first = get("/attack/nothing?wait=60") + behind * (60_000 // len(behind))
        half = (attacker.deadline - attacker.began) / 2
        while attacker.elapsed < half:
            if len(attacker.connections) >= self.COUNT or not attacker.open(first):
                attacker.rest(0.1)
        for connection in list(attacker.connections.values()):
            attacker.drop(connection, was_cut=False)
        attacker.rest(attacker.deadline - time.monotonic())


class BacklogFull(Attack):
    """Clients who do not read their look-ups fill what is kept for such; others must not pay."""

    settings_mib = READERS_MIB
    config = READERS_CONFIG
    NAMES = 1_000

    def prepare(self, stage: "Stage") -> None:
        stage.server.put_many((f"/look/{at:03}", text(KB, at)) for at in range(self.NAMES))
        self.path = "/-/values?prefix=/look/&names=" + ",".join(
            f"{at:03}" for at in range(self.NAMES))

    def strike(self, attacker: Attacker) -> None:
        while not attacker.over:
            if len(attacker.connections) < 200:
                attacker.open(get(self.path), reads=False, is_far=True)
            attacker.turn(0.01)

    def probe(self, stage: "Stage") -> bool:
        """A newcomer asks for as much, and reads it as a client far away does."""
        with contextlib.suppress(OSError, MeasurementError), Client(stage.server.port) as client:
            client.sock = socket.socket()
            be_far(client.sock)
            client.sock.settimeout(10)
            client.sock.bind(("127.3.0.1", 0))
            client.sock.connect(("127.0.0.1", stage.server.port))
            return len(client.read(self.path)) > KB * self.NAMES
        return False


# ---- 10: small requests that cost much ----


class Commands(Attack):
    """Commands of 30 bytes, on connections that have 999 subscriptions already."""

    def strike(self, attacker: Attacker) -> None:
        first = websocket("/-/events", commands=True, deflate=True)
        many = subscribe([f"/commands/{at}" for at in range(999)])
        flood = (frame(b'{"subscribe":["/c/1000"]}') + frame(b'{"unsubscribe":["/c/1000"]}')) * 20
        for connection in attacker.keep(8, first):
            if connection.head and not connection.tag:
                connection.tag = attacker.send(connection, many)
            elif connection.head:
                attacker.send(connection, flood)


class Lookups(Attack):
    """Look-ups of a text too large for one, of 1,000 names, and of what the client has already."""

    def prepare(self, stage: "Stage") -> None:
        stage.server.put("/lookups/large", b'"' * 1_000_000)
        stage.server.put("/lookups/fits", b'"' * 500_000)
        stage.server.put_many((f"/l/{at}", "1") for at in range(1_000))

    def requests(self, attacker: Attacker) -> list[bytes]:
        tag = tag_of(attacker.port, "/-/values?topic=/lookups/fits")
        names = ",".join(map(str, range(1_000)))
        return [
            get("/-/values?topic=/lookups/large") * 20,
            get("/-/values?topic=/lookups/fits", f"If-None-Match: {tag}") * 20,
            get(f"/-/values?prefix=/l/&names={names}"),
        ]


# ---- Work that must be admitted ----


class Admitted(Attack):
    """An attack on the budget of a work class; a WebSocket that pings must not notice it."""

    PONG_MS_MAX = 100

    def probe(self, stage: "Stage") -> bool:
        """A WebSocket that was not there before has its ping answered at once."""
        with contextlib.suppress(OSError), socket.create_connection(
                ("127.0.0.1", stage.server.port), 1, ("127.3.0.4", 0)) as opened:
            opened.sendall(websocket("/-/events", commands=True))
            if not received(opened, b"\r\n\r\n"):
                return False
            began = time.monotonic()
            opened.sendall(frame(b'{"ping":1}'))
            is_answered = received(opened, b'{"pong":1}')
            return is_answered and time.monotonic() - began <= self.PONG_MS_MAX / 1_000
        return False


def received(opened: socket.socket, wanted: bytes) -> bool:
    """Whether this comes before the time of the socket is over."""
    bytes_read = b""
    while wanted not in bytes_read:
        if not (more := opened.recv(4_096)):
            return False
        bytes_read += more
    return True


class ResumeNames(Admitted):
    """8 connections pipeline resumes of 16 topics, 65,000 changes of another topic behind."""

    sockets = 8
    NAMES = 16
    CHANGES = 65_000

    def prepare(self, stage: "Stage") -> None:
        publish_many(stage, [f"/resumed/{at}" for at in range(self.NAMES)], lambda _: "1")
        cursor = tag_of(stage.server.port, f"/resumed/{self.NAMES - 1}").strip('"')
        stage.server.put_many(("/resumed/busy", str(at)) for at in range(self.CHANGES))
        topics = "&".join(f"topic=/resumed/{at}" for at in range(self.NAMES))
        self.target = f"/-/events?{topics}&since={cursor}"

    def requests(self, attacker: Attacker) -> list[bytes]:
        return [get(self.target) * 20]


class ResumeReaders(ResumeNames):
    """200 readers of those topics lose their connections together and come back, repeatedly."""

    READERS = 200
    EVERY_SECONDS = 0.5

    def strike(self, attacker: Attacker) -> None:
        while not attacker.over:
            come_and_go(attacker, self.target, self.READERS, self.EVERY_SECONDS)


class ShortNames(Admitted):
    """16 connections pipeline long-polls of 16 topics with short names."""

    rate = 20 * BYTES_PER_SECOND
    sockets = 16

    def requests(self, attacker: Attacker) -> list[bytes]:
        return [get("/-/events?" + "&".join(f"topic=/t{at}" for at in range(16))) * 400]


class LargePolls(Admitted):
    """16 connections long-poll 8 values of 60 KB; a reader of a pattern comes meanwhile."""

    sockets = 16
    VALUES = 8

    def prepare(self, stage: "Stage") -> None:
        stage.server.put_many((f"/polled/{at}", text(60 * KB, at)) for at in range(self.VALUES))
        stage.server.put("/pattern/value", b"found")

    def probe(self, stage: "Stage") -> bool:
        """A reader of a pattern has its first message in a second, and a ping is answered."""
        with contextlib.suppress(OSError), socket.create_connection(
                ("127.0.0.1", stage.server.port), 1, ("127.3.0.5", 0)) as opened:
            opened.sendall(stream("/-/events?topic=/pattern/*"))
            return received(opened, b'"data":"found"}\n\n') and super().probe(stage)
        return False

    def requests(self, attacker: Attacker) -> list[bytes]:
        topics = "&".join(f"topic=/polled/{at}" for at in range(self.VALUES))
        return [get(f"/-/events?{topics}&wait=9") * 10]


class OneByteBodies(Admitted):
    """30 connections look up 1 MB of values, each request with a body of one byte."""

    target = "/-/values?" + "&".join(f"topic=/bodies/{at}" for at in range(8))

    def prepare(self, stage: "Stage") -> None:
        stage.server.put_many((f"/bodies/{at}", text(120 * KB, at)) for at in range(8))

    def requests(self, attacker: Attacker) -> list[bytes]:
        return [(get(self.target, "Content-Length: 1") + b"x") * 4]


class QueueShare(OneByteBodies):
    """Connections ask for as much, are reset and come again: no place in a queue must stay."""

    def strike(self, attacker: Attacker) -> None:
        asking: list[Connection] = []
        for _ in attacker.steps(1_000):
            if connection := attacker.open(get(self.target) * 4):
                asking.append(connection)
            if len(asking) > self.sockets:
                attacker.drop(asking.pop(0), was_cut=False, reset=True)


class Listings(Admitted):
    """30 connections ask for the list of a directory of 12,000 files."""

    files = {f"listed/{at}.txt": 1 for at in range(12_000)}
    config = f"""\
[[static]]
path = "/listed/"
root = "{OUT_DIR}/attack-site/listed"
listing = true
"""

    def requests(self, attacker: Attacker) -> list[bytes]:
        return [get("/listed/") * 4]


class LoggedParameters(Admitted):
    """16 KB of empty parameters in each request, where there is an access log."""

    sockets = 16
    rate = 10 * BYTES_PER_SECOND
    config = f"""\
[log]
access = "{OUT_DIR}/attack-access.log"
"""

    def requests(self, attacker: Attacker) -> list[bytes]:
        return [get("/?" + "&" * 15_000)]


# ---- What every server meets ----


class AcceptFlood(Attack):
    """Connections that are made and closed, some with a byte in them, some by a reset."""

    WIRE_BYTES = 400
    """What the packets of one come to, headers included."""

    def strike(self, attacker: Attacker) -> None:
        while not attacker.over:
            attacker.spend(self.WIRE_BYTES)
            connection = attacker.open(b"G" if attacker.numbers % 2 else b"")
            if connection:
                attacker.drop(connection, was_cut=False, reset=connection.number % 4 < 2)
                attacker.tally[SENT] += self.WIRE_BYTES


class Slowloris(Attack):
    """10,000 heads that are never finished."""

    def strike(self, attacker: Attacker) -> None:
        begun = f"GET {VALUE} HTTP/1.1\r\nHost: stentor.test\r\nX: ".encode()
        attacker.hold(MANY, lambda _: begun)


class OneByte(Attack):
    """10,000 connections send their requests byte by byte."""

    def strike(self, attacker: Attacker) -> None:
        request = get(VALUE)
        while not attacker.over:
            for connection in list(attacker.connections.values()):
                if attacker.over:
                    return
                at = connection.tag % len(request)
                if attacker.send(connection, request[at:at + 1]):
                    connection.tag += 1
                if connection.number % 64 == 0:
                    attacker.turn()
            for _ in range(500):
                if len(attacker.connections) < MANY:
                    attacker.open(b"")
            attacker.turn()


class HeadBr(Attack):
    """HEADs of texts of 4 MB that nobody has asked for in br yet: few bytes, much to compress."""

    FILES = 40
    files = {f"text/{at}.txt": 4_000_000 for at in range(FILES)}
    settings_mib = stays_mib = 64

    def strike(self, attacker: Attacker) -> None:
        for step in attacker.steps(10):
            path = f"/text/{step % self.FILES}.txt"
            request = get(path, "Accept-Encoding: br").replace(b"GET", b"HEAD", 1)
            connection = attacker.open(request)
            attacker.rest(0.05)
            if connection:
                attacker.drop(connection, was_cut=False)


class TlsAttack(Attack):
    """An attack on a listener that speaks TLS."""

    over_tls = True

    def probe(self, stage: "Stage") -> bool:
        """A newcomer is served in a second, its handshake included."""
        with contextlib.suppress(MeasurementError), \
                Client(stage.server.port, "https", timeout=1, source="127.3.0.3") as client:
            client.read(VALUE)
            return True
        return False


class TlsHalfHellos(TlsAttack):
    """10,000 connections with half of a hello each; another comes for each that is cut."""

    def strike(self, attacker: Attacker) -> None:
        half = hello()[:-1]
        attacker.hold(MANY, lambda _: half)


class TlsTrickle(TlsAttack):
    """10,000 hellos that come byte by byte."""

    def strike(self, attacker: Attacker) -> None:
        whole = hello()
        trickling: list[Connection] = []
        for step in attacker.steps(2_000):
            if len(attacker.connections) < MANY:
                attacker.open(whole[:1])
            if step % MANY == 0:
                trickling = list(attacker.connections.values())
            connection = trickling[step % len(trickling)]
            connection.tag = min(connection.tag + 1, len(whole) - 2)
            attacker.send(connection, whole[connection.tag:connection.tag + 1])


class TlsHandshakes(TlsAttack):
    """Hellos without end: the server signs for each, the attacker sends bytes."""

    def strike(self, attacker: Attacker) -> None:
        whole = hello()
        while not attacker.over:
            attacker.open(whole)
            attacker.turn()
            if len(attacker.connections) > 1_000:
                oldest = next(iter(attacker.connections.values()))
                attacker.drop(oldest, was_cut=False, reset=True)


class TlsRecords(TlsAttack):
    """4,000 sessions, each with a record of 16 KiB that never comes whole."""

    config = READERS_CONFIG
    settings_mib = READERS_MIB
    stays_mib = READERS_MIB
    rate = 4_000_000

    SESSIONS = 4_000
    PART = bytes(1_000)
    PARTS = 16

    def strike(self, attacker: Attacker) -> None:
        header = b"\x17\x03\x03" + (16_384 + 17).to_bytes(2, "big")
        sessions: list[tuple[socket.socket, int]] = []
        at = 0
        while not attacker.over:
            attacker.tally[OPEN] = len(sessions)
            attacker.spend(len(self.PART))
            try:
                if len(sessions) < self.SESSIONS:
                    sessions.append((detached_session(attacker), 1))
                    attacker.tally[SENT] += sessions[-1][0].send(header + self.PART)
                    continue
                at = (at + 1) % len(sessions)
                opened, parts = sessions[at]
                if parts < self.PARTS:
                    sessions[at] = opened, parts + 1
                    attacker.tally[SENT] += opened.send(self.PART)
            except BlockingIOError:
                pass
            except OSError:
                if len(sessions) == self.SESSIONS:
                    sessions.pop(at)[0].close()
                    attacker.tally[CUT] += 1


class TlsKeyUpdates(TlsAttack):
    """Sessions change their keys and have the server change its own, without end, between GETs."""

    SESSIONS = 200
    UPDATES = 30

    def strike(self, attacker: Attacker) -> None:
        sessions: list[Session] = []
        at = 0
        while not attacker.over:
            if len(sessions) < self.SESSIONS:
                with contextlib.suppress(OSError):
                    sessions.append(Session(connected(attacker)))
                continue
            at = (at + 1) % len(sessions)
            session = sessions[at]
            is_alive = all(session.update_keys() for _ in range(self.UPDATES))
            # A GET is something, and they may go on.
            is_alive = is_alive and session.send(get(VALUE))
            session.receive()
            attacker.tally[SENT] += self.UPDATES * KEY_UPDATE_BYTES
            attacker.spend(self.UPDATES * KEY_UPDATE_BYTES)
            if not is_alive:
                sessions.pop(at).close()
                attacker.tally[CUT] += 1
            attacker.tally[OPEN] = len(sessions)


class TlsRenegotiation(TlsAttack):
    """Sessions of TLS 1.2 ask for another handshake as soon as they have one."""

    def strike(self, attacker: Attacker) -> None:
        bytes_each = len(hello())
        while not attacker.over:
            attacker.spend(bytes_each)
            try:
                session = Session(connected(attacker), is_old=True)
            except OSError:
                continue
            session.ask_anew()
            attacker.tally[SENT] += bytes_each
            session.close()


def detached_session(attacker: Attacker) -> socket.socket:
    """The socket of one, on which anything may be sent from here on."""
    opened = trusting().wrap_socket(connected(attacker))
    session = socket.socket(fileno=opened.detach())
    session.setblocking(False)
    return session


def connected(attacker: Attacker) -> socket.socket:
    """From one of the addresses of attackers."""
    number = attacker.tally[OPENED] = attacker.tally[OPENED] + 1
    return socket.create_connection(
        ("127.0.0.1", attacker.port), 5, (address(number % ADDRESSES), 0))


def all_attacks(of: type[Attack] = Attack) -> Iterator[type[Attack]]:
    """In the order of their definition."""
    for attack in of.__subclasses__():
        yield attack
        yield from all_attacks(attack)


ATTACKS: dict[str, type[Attack]] = {
    attack.name(): attack for attack in all_attacks() if attack not in (Admitted, TlsAttack)}


def make_files(root: Path, files: dict[str, int]) -> None:
    """Writes those that are not there yet, each with a text of its own."""
    for at, (name, length) in enumerate(files.items()):
        file = root / name
        if not file.exists() or file.stat().st_size != length:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text(length, at))
