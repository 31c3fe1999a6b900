"""What TLS costs: against nginx and nchan over TLS, and against the same without.

All load is `stentor bench`, which is a client of TLS with sessions as small as the server's. Both
servers show the same certificate, by ECDSA, and agree on X25519 and AES-128, which the client puts
first. Sessions are not resumed.
"""

import time
from contextlib import ExitStack
from dataclasses import replace

from . import table
from .bench import Bench, MeasurementError, require_tools
from .compare import (
    CPU_EACH,
    PROCESS_EACH,
    Contestant,
    compare,
    finish,
    push,
    start,
    steady_gets,
)
from .load import CONNECTIONS, Load, Series
from .reading import TOPIC, VALUE
from .servers import QUIET_STREAMS_CONFIG, Nchan, Nginx, Stentor, expect_body

READERS = 15_000
PER_SECOND = 4
MESSAGE_BYTES = 100
STREAM = "/bench/tls"

GETS_PER_SECOND = 1_000
STORM_LEAD_SECONDS = 0.5

def tls(bench: Bench) -> list[table.Row]:
    """Requests, new connections, readers, and a storm of handshakes."""
    require_tools(("openssl",))
    return [*requests(bench), *readers(bench), *storm(bench)]


def requests(bench: Bench) -> list[table.Row]:
    """GETs on connections that are kept, and each on a new one."""
    seconds, rounds = f"{bench.options.seconds}s", bench.options.rounds
    with Stentor(bench, secured=True) as stentor, Nginx(VALUE, secured=True) as nginx:
        stentor.put(TOPIC, VALUE)
        both = [Contestant(server.name, server, TOPIC) for server in (stentor, nginx)]
        for server in (stentor, nginx):
            expect_body(server, TOPIC, VALUE)
        options = ("--connections", CONNECTIONS, "--duration")
        compare(bench, "get", both, *options, "1s")
        kept = compare(bench, "get", both, *options, seconds, rounds=rounds)
        new = compare(bench, "get", both, *options, seconds, "--close", rounds=rounds)
    return [
        Load(f"GET over TLS, {CONNECTIONS} connections", kept, ()).row(
            CPU_EACH, "nginx", table.at_most(0.75)),
        Load("new TLS connection with one GET", new, ()).row(
            CPU_EACH, "nginx", table.at_most(0.4)),
    ]


def readers(bench: Bench) -> list[table.Row]:
    """15,000 readers of one topic: what each takes while nothing comes, and what a message costs.

    The same server without TLS has the same readers, and takes turns with the others.
    """
    with ExitStack() as stack:
        secured = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG, secured=True))
        nchan = stack.enter_context(Nchan(secured=True))
        plain = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG))
        for stentor in (secured, plain):
            stentor.put(STREAM, VALUE)
        all_of_them = [
            Contestant("stentor", secured, STREAM, publisher(secured)),
            Contestant("nchan", nchan, STREAM, f"https://127.0.0.1:{nchan.port}/pub"),
            Contestant("without", plain, STREAM, publisher(plain)),
        ]
        silent = [replace(one, publish=None) for one in all_of_them]
        held = compare(bench, "hold", silent, "--as", "sse", "--connections", READERS,
                       "--duration", "500ms")
        found = push(bench, all_of_them, "sse", MESSAGE_BYTES, PER_SECOND, READERS)
    what = f"{READERS:,} SSE readers over TLS"
    silence, messages = Load(what, held, ()), Load(what, found, ())
    return [
        silence.against_all(PROCESS_EACH, table.at_most(220, " B")),
        silence.row(PROCESS_EACH, "nchan", table.at_most(0.01)),
        messages.row(CPU_EACH, "without", table.at_most(1.15)),
        messages.row(CPU_EACH, "nchan", table.at_most(0.5)),
    ]


def publisher(stentor: Stentor) -> str:
    return f"http://127.0.0.1:{stentor.control_port}{STREAM}"


def storm(bench: Bench) -> list[table.Row]:
    """GETs at a steady rate on plain connections, beside as many new connections as go: each with a
    handshake, or each plain.

    Both fill what is left of the server's core, and come from the load's, where those who ask go
    first: at a real-time priority, or what is measured is how long they wait there for those who
    connect. Their latency counts from when a request was due.
    """
    p99: dict[str, list[float]] = {"https": [], "http": []}
    busy: dict[str, list[float]] = {"https": [], "http": []}
    with Stentor(bench, secured=True) as stentor:
        stentor.put(TOPIC, VALUE)
        expect_body(stentor, TOPIC, VALUE)
        ports = {"https": stentor.port, "http": stentor.plain_port}
        for nth in range(bench.options.rounds):
            for scheme in ("https", "http") if nth % 2 == 0 else ("http", "https"):
                url = f"{scheme}://127.0.0.1:{ports[scheme]}{TOPIC}"
                found, share = beside(bench, stentor, url)
                p99[scheme].append(found["p99_us"])
                busy[scheme].append(share)
    times, shares = Series(p99).median, Series(busy).median
    return [table.ratio_row(
        "GETs on plain connections beside a storm of handshakes: p99",
        f"{times('https') / 1e3:.2f} ms (core {shares('https'):.0%} busy)",
        f"plain connections {times('http') / 1e3:.2f} ms ({shares('http'):.0%})",
        Series(p99).ratio("https", "http"), table.at_most(1.3))]


def beside(bench: Bench, stentor: Stentor, url: str) -> tuple[dict[str, float], float]:
    """What those feel who ask at a steady rate while others connect to `url`, and how busy the
    server is with both."""
    seconds = bench.options.seconds
    others = start([
        "nice", "-n", 10, bench.stentor, "bench", "get", url, "--close", "--connections",
        CONNECTIONS, "--duration", f"{seconds + 2}s", "--threads", 1, "--insecure", "--json"])
    try:
        time.sleep(STORM_LEAD_SECONDS)
        before, began = stentor.cpu_seconds(), time.monotonic()
        found = steady_gets(bench, stentor.plain_port, TOPIC, GETS_PER_SECOND, seconds, 8)
        share = (stentor.cpu_seconds() - before) / (time.monotonic() - began)
    finally:
        report = finish("get", others, seconds + 30)
    if report["errors"]:
        raise MeasurementError(f"the storm had errors: {report['errors']}")
    return found, share
