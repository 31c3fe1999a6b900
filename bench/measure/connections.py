"""Connections that stay and say nothing."""

from . import table
from .bench import Bench
from .compare import PROCESS_EACH, Contestant, hold_idle
from .load import Load
from .reading import TOPIC, VALUE
from .servers import readers_of_value

IDLE_CONNECTIONS = 15_000


def idle_load(bench: Bench, connections: int = IDLE_CONNECTIONS, rounds: int = 1) -> Load:
    with readers_of_value(bench, TOPIC, VALUE) as servers:
        held = hold_idle(bench, [Contestant(name, server, TOPIC)
                                 for name, server in servers.items()], connections, rounds)
    return Load(f"{connections:,} idle connections", held, (PROCESS_EACH,))


def idle(bench: Bench) -> list[table.Row]:
    """Memory of 15,000 keep-alive connections that each made one request and then went quiet."""
    return [idle_load(bench).against_all(PROCESS_EACH, table.at_most(160, " B"))]
