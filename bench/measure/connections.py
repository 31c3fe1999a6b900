"""Connections that come and go, and connections that stay and say nothing."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from . import table
from .bench import Bench, MeasurementError
from .load import Subject, alternate
from .process import Memory, Server
from .reading import TOPIC, VALUE, carried_rows
from .servers import Floor, Nginx, Stentor, exchange, expect_body, get

IDLE_CONNECTIONS = 15_000
WARM_UP_CONNECTIONS = 300
SPARE_FILES = 100
SETTLE_SECONDS = 0.5


def short(bench: Bench) -> list[table.Row]:
    """One connection per request, against nginx.

    Opening and closing a connection costs the client more than the server, so one core of load
    does not fill one core of server, and requests per second of wall time would compare the load
    generator with itself. Judged is what the server's core would carry: requests divided by the
    time that core was busy with them, soft interrupts included.
    """
    with Stentor(bench) as stentor, Nginx(VALUE) as nginx:
        stentor.put(TOPIC, VALUE)
        expect_body(stentor, TOPIC, VALUE)
        series = alternate(bench.options, [
            Subject(server.name, server, TOPIC, fields=("Connection: close",))
            for server in (stentor, nginx)
        ])
    return carried_rows("one connection per request", series, "stentor", table.at_least(1.05))


def idle(bench: Bench) -> list[table.Row]:
    """Memory of 15,000 keep-alive connections that each made one request and then went quiet."""
    needed = IDLE_CONNECTIONS + WARM_UP_CONNECTIONS + SPARE_FILES
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed:
        raise MeasurementError(f"{needed:,} open files are needed (ulimit -Hn)")
    with Stentor(bench) as stentor:
        stentor.put(TOPIC, VALUE)
        response = get(stentor, TOPIC)
        grown = idle_growth(stentor)
    with Floor(bench, response) as floor:
        floor_grown = idle_growth(floor)
    each = grown.resident / IDLE_CONNECTIONS
    floor_each = floor_grown.resident / IDLE_CONNECTIONS
    detail = (f"{each:.0f} B (PSS {grown.proportional / IDLE_CONNECTIONS:.0f}, "
              f"anonymous {grown.anonymous / IDLE_CONNECTIONS:.0f})")
    target = table.at_most(160, " B")
    what = f"{IDLE_CONNECTIONS:,} idle connections: process memory each"
    return [table.Row(what, detail, f"floor {floor_each:.0f} B", "", target.text,
                      target.holds(each))]


def idle_growth(server: Server) -> Memory:
    """Growth from a few hundred connections to 15,000 more, all of them still open at the end."""
    with opened(server, WARM_UP_CONNECTIONS):
        time.sleep(SETTLE_SECONDS)
        before = server.memory()
        with opened(server, IDLE_CONNECTIONS) as connections:
            time.sleep(SETTLE_SECONDS)
            after = server.memory()
            alive = sum(map(is_open, connections))
    if alive != IDLE_CONNECTIONS:
        raise MeasurementError(f"{server.name}: only {alive:,} connections were still open")
    return Memory(after.resident - before.resident,
                  after.proportional - before.proportional,
                  after.anonymous - before.anonymous)


@contextmanager
def opened(server: Server, count: int) -> Iterator[list[socket.socket]]:
    """That many connections, each with one request made and answered."""
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", server.port), 10)
            connections.append(connection)
            exchange(connection, TOPIC)
        yield connections
    except OSError as error:
        reached = f"connection {len(connections):,}"
        raise MeasurementError(f"{server.name}: {reached}: {error}") from error
    finally:
        for connection in connections:
            connection.close()


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither closed the connection nor sent anything unasked."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
