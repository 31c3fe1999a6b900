"""What an attacker is made of: connections from many addresses, and a rate it keeps to.

An attacker is a process of its own, at low priority, that says nothing and counts what it sends.
It works in one thread: whatever it waits for, it goes on reading for all of its connections.
"""

import errno
import select
import signal
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from ctypes import CDLL
from dataclasses import dataclass
from multiprocessing.sharedctypes import SynchronizedArray

from measure.client import IP_BIND_ADDRESS_NO_PORT, RESET_ON_CLOSE, be_far

BYTES_PER_SECOND = 1_000_000
ADDRESSES = 500
"""From which an attack comes, in 127.1.0.0/16."""

PR_SET_PDEATHSIG = 1
SO_RCVBUFFORCE = 33
OVERTIME_SECONDS = 120

SENT, OPENED, OPEN, CUT, TALLIES = range(5)


@dataclass(slots=True, eq=False)
class Connection:
    """One of the attacker's connections; what could not be sent at once waits in `outbox`."""

    socket: socket.socket
    number: int
    reads: bool
    outbox: bytes
    head: bytes = b""
    tag: int = 0
    """What the attack has done with it."""


class Attacker:
    """Passed to an attack, which does with it what it likes until `over`."""

    def __init__(self, port: int, seconds: float, tally: "SynchronizedArray[int]",
                 rate: int = BYTES_PER_SECOND) -> None:
        self.port = port
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.tally = tally
        self.rate = rate
        self.owed_until = self.began
        self.connections: dict[int, Connection] = {}
        self.numbers = 0
        self.epoll = select.epoll()
        self.buffer = bytearray(256 * 1024)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.deadline

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def open(self, first: bytes, reads: bool = True, is_far: bool = False,
             receive_bytes: int = 0) -> Connection | None:
        """A connection that sends `first` as soon as it can; None if there is none to be had.

        Over loopback a socket is sent a megabyte before anybody has read a byte. One that `is_far`
        announces the segments and a window as small as those of a client far away may be. One with
        `receive_bytes` has so large a buffer for what it does not read, which takes root.
        """
        self.spend(len(first))
        number = self.numbers
        self.numbers += 1
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            opened.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if is_far:
                be_far(opened)
            if receive_bytes:
                opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes)
            opened.bind((address(number % ADDRESSES), 0))
            failed = opened.connect_ex(("127.0.0.1", self.port))
            if failed not in (0, errno.EINPROGRESS):
                raise OSError(failed, "connect")
        except OSError:
            opened.close()
            return None
        connection = Connection(opened, number, reads, first)
        self.connections[opened.fileno()] = connection
        self.epoll.register(opened.fileno(), 0)
        self.tally[OPENED] += 1
        self.tally[OPEN] = len(self.connections)
        self.flush(connection)
        return connection

    def send(self, connection: Connection, data: bytes) -> bool:
        """Sends at the attack's rate; False if the connection has ended or takes no more."""
        self.spend(len(data))
        if connection.socket.fileno() < 0 or connection.outbox:
            return False
        connection.outbox = data
        self.flush(connection)
        return connection.socket.fileno() >= 0

    def flush(self, connection: Connection) -> None:
        """Sends what the socket takes, and waits for what is then of interest."""
        if connection.outbox:
            try:
                sent = connection.socket.send(connection.outbox)
                self.tally[SENT] += sent
                connection.outbox = connection.outbox[sent:]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.EPIPE):
                    self.drop(connection)
                    return
        events = (select.EPOLLOUT if connection.outbox else 0) | (
            select.EPOLLIN if connection.reads else 0)
        self.epoll.modify(connection.socket.fileno(), events)

    def drop(self, connection: Connection, was_cut: bool = True, reset: bool = False) -> None:
        if connection.socket.fileno() < 0:
            return
        self.connections.pop(connection.socket.fileno(), None)
        if reset:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        connection.socket.close()
        self.tally[CUT] += was_cut
        self.tally[OPEN] = len(self.connections)

    def turn(self, seconds: float = 0.0) -> None:
        """Reads what has come and sends what waited, for at most so long if nothing happens."""
        for number, events in self.epoll.poll(seconds, 256):
            connection = self.connections.get(number)
            if connection is None:
                continue
            if events & select.EPOLLOUT:
                self.flush(connection)
            elif events & select.EPOLLIN and connection.reads:
                self.read(connection)
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.drop(connection)

    def read(self, connection: Connection) -> None:
        try:
            received = connection.socket.recv_into(self.buffer)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        if received == 0:
            self.drop(connection)
        elif len(connection.head) < 1024:
            connection.head += self.buffer[:min(received, 1024)]

    def spend(self, count: int) -> None:
        """Returns when `count` bytes more may be sent; an idle second is not saved up."""
        now = time.monotonic()
        self.owed_until = max(self.owed_until, now - 0.02) + count / self.rate
        self.rest(self.owed_until - now)

    def rest(self, seconds: float) -> None:
        """Goes on reading for so long, or until all is over."""
        end = min(time.monotonic() + seconds, self.deadline)
        while (left := end - time.monotonic()) > 0:
            self.turn(left)

    def steps(self, per_second: float) -> Iterator[int]:
        """Counts at a steady rate until all is over."""
        step = 0
        while not self.over:
            yield step
            step += 1
            self.rest(self.began + step / per_second - time.monotonic())

    def keep(self, count: int, first: bytes, seconds: float = 0.01) -> Iterator[Connection]:
        """Keeps so many connections, and names each of them in turn, until all is over."""
        while not self.over:
            while len(self.connections) < count and self.open(first):
                pass
            self.turn(seconds)
            yield from list(self.connections.values())

    def hold(self, count: int, first: Callable[[int], bytes], reads: bool = True) -> None:
        """Opens `count` connections, and opens another for each that was cut, until all is over."""
        while not self.over:
            if len(self.connections) < count:
                connection = self.open(first(self.numbers), reads)
                self.rest(0.1) if connection is None else self.turn()
            else:
                self.turn(0.1)


def address(number: int) -> str:
    """One of the addresses that attacks come from."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def become_attacker(seconds: float) -> None:
    """For a process just forked: it yields to everybody, and ends whatever happens."""
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(seconds) + OVERTIME_SECONDS)


# ---- What they send ----

def frame(payload: bytes, deflated: bool = False) -> bytes:
    """A text frame. Zero is a mask too, and leaves the payload as it is."""
    first = bytes([0xc1 if deflated else 0x81])
    size = len(payload)
    length = (bytes([0x80 | size]) if size < 126
              else b"\xfe" + size.to_bytes(2, "big") if size < 65536
              else b"\xff" + size.to_bytes(8, "big"))
    return first + length + bytes(4) + payload


def deflated_frame(payload: bytes) -> bytes:
    """The payload as a message of permessage-deflate (RFC 7692)."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return frame(packed.removesuffix(b"\x00\x00\xff\xff"), deflated=True)
