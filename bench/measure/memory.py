"""Heap allocations, counted by a preloaded library (malloc_count.c)."""

import mmap
import struct
import time
from contextlib import ExitStack

from . import table
from .bench import OUT_DIR, Bench, MeasurementError, compile_c
from .client import Client
from .reading import TOPIC, VALUE
from .servers import Stentor

CONNECTIONS = 16
WARM_UP_ROUNDS = 250
MEASURED_ROUNDS = 1_250
COUNTER_BYTES = 8


def allocations(bench: Bench) -> list[table.Row]:
    """Allocations while 20,000 GETs are answered on connections that are already open."""
    file = OUT_DIR / "malloc_count.bin"
    file.write_bytes(bytes(COUNTER_BYTES))
    library = compile_c("malloc_count.c", OUT_DIR / "malloc_count.so", "-shared", "-fPIC")
    environment = {"LD_PRELOAD": str(library), "MALLOC_COUNT_FILE": str(file)}
    with (
        open(file, "r+b") as opened,
        mmap.mmap(opened.fileno(), COUNTER_BYTES) as counter,
        Stentor(bench, environment) as stentor,
        ExitStack() as stack,
    ):
        before_put = count(counter)
        stentor.put(TOPIC, VALUE)
        if count(counter) == before_put:
            raise MeasurementError("publishing allocated nothing: malloc is not being counted")
        clients = [stack.enter_context(Client(stentor.port)) for _ in range(CONNECTIONS)]
        ask(clients, WARM_UP_ROUNDS)
        start, began = count(counter), time.monotonic()
        ask(clients, MEASURED_ROUNDS)
        made, seconds = count(counter) - start, time.monotonic() - began
        start = count(counter)
        time.sleep(seconds)
        made_at_rest = count(counter) - start
    gets = CONNECTIONS * MEASURED_ROUNDS
    each = made / gets
    text = f"{each:g} ({made:,} in {gets:,} GETs; {made_at_rest:,} in as long a rest)"
    return [table.absolute_row("allocations per GET in the steady state", text, each,
                               table.at_most(0))]


def count(counter: mmap.mmap) -> int:
    return struct.unpack("=Q", counter[:COUNTER_BYTES])[0]


def ask(clients: list[Client], rounds: int) -> None:
    for _ in range(rounds):
        for client in clients:
            if client.read(TOPIC) != VALUE:
                raise MeasurementError(f"GET {TOPIC} answered something else")
