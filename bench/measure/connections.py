"""Connections that come and go, and connections that stay and say nothing."""

from . import table
from .bench import Bench
from .compare import Contestant, hold_idle, process_bytes_each
from .load import Subject, alternate
from .reading import TOPIC, VALUE, carried_rows
from .servers import Floor, Nginx, Stentor, expect_body, get

IDLE_CONNECTIONS = 15_000


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
    with Stentor(bench) as stentor:
        stentor.put(TOPIC, VALUE)
        with Floor(bench, get(stentor, TOPIC)) as floor:
            found = hold_idle(bench, [Contestant(server.name, server, TOPIC)
                                      for server in (stentor, floor)], IDLE_CONNECTIONS)
    each, floor_each = (found.median(name, process_bytes_each) for name in ("stentor", "floor"))
    return [table.absolute_row(f"{IDLE_CONNECTIONS:,} idle connections: process memory each",
                               f"{each:.0f} B", each, table.at_most(160, " B"),
                               f"floor {floor_each:.0f} B")]
