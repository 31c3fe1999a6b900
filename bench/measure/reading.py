"""Reading values on connections that stay: plain, pipelined, compressed, looked up."""

import gzip
import json
import random
import time

from . import client, table
from .bench import Bench, MeasurementError
from .load import (
    CONNECTIONS,
    CPU,
    RATE,
    Load,
    Series,
    Subject,
    alternate,
    carried_per_second,
    core_share,
    cpu_us,
    per_second,
)
from .servers import Server, Stentor, expect_body, read, readers_of_value

VALUE = b"189.98 +0.42"
TOPIC = "/quotes/aapl"
PIPELINE_DEPTH = 16
NAMES = 10_000
NAMES_PER_LOOKUP = 5
JSON_BYTES = 15_000
COMPRESSION_SECONDS_MAX = 5


def load_of(bench: Bench, what: str, *names: str, **how: object) -> Load:
    """GETs of the 12-byte value by wrk, on those of the servers that are named, or on all."""
    with readers_of_value(bench, TOPIC, VALUE) as servers:
        series = alternate(bench.options, [
            Subject(name, server, TOPIC, **how) for name, server in servers.items()
            if not names or name in names])
    return Load(what, series, (RATE, CPU))


def plain_load(bench: Bench, connections: int = CONNECTIONS) -> Load:
    return load_of(bench, f"GET of {len(VALUE)} bytes, {connections:,} connections",
                   connections=connections)


def pipelined_load(bench: Bench) -> Load:
    return load_of(bench, f"{PIPELINE_DEPTH} GETs in one write", script="pipelined.lua",
                   arguments=(PIPELINE_DEPTH,))


def short_load(bench: Bench) -> Load:
    """The floor closes nothing."""
    return load_of(bench, "one connection per request", "stentor", "nginx",
                   fields=("Connection: close",))


def requests(bench: Bench, connections: int = CONNECTIONS) -> list[table.Row]:
    """Server CPU per keep-alive GET of the 12-byte value, against floor and nginx."""
    load, many = plain_load(bench, connections), connections > CONNECTIONS
    return [load.row(CPU, "floor", table.at_most(1.15 if many else 1.10)),
            load.row(CPU, "nginx", None if many else table.below(1.0))]


def pipelined(bench: Bench) -> list[table.Row]:
    """Requests per second with 16 GETs in each write, against nginx."""
    return [pipelined_load(bench).row(RATE, "nginx", table.at_least(4))]


def short(bench: Bench) -> list[table.Row]:
    """One connection per request, against nginx.

    Opening and closing a connection costs the client more than the server, so one core of load
    does not fill one core of server, and requests per second of wall time would compare the load
    generator with itself. Judged is what the server's core would carry: requests divided by the
    time that core was busy with them, soft interrupts included.
    """
    load = short_load(bench)
    return carried_rows(load.what, load.series, "stentor", table.at_least(1.05))


def gzipped(bench: Bench) -> list[table.Row]:
    """Server CPU per GET of a 15 KB JSON value sent as gzip, against the 12-byte value's."""
    document = quotes_document()
    with Stentor(bench) as stentor:
        stentor.put(TOPIC, VALUE)
        stentor.put("/quotes/all", document, "application/json")
        sent = wait_for_gzip(stentor, "/quotes/all", document)
        series = alternate(bench.options, [
            Subject("gzip", stentor, "/quotes/all", fields=("Accept-Encoding: gzip",)),
            Subject("12 bytes", stentor, TOPIC),
        ])
    what = f"JSON of {len(document):,} bytes as gzip ({sent:,} bytes)"
    return [cpu_row(what, series, "gzip", "12 bytes", table.at_most(1.2))]


def lookup(bench: Bench) -> list[table.Row]:
    """Server CPU per look-up of 5 names out of 10,000, against a single GET's."""
    with Stentor(bench) as stentor:
        stentor.put_many((f"/quotes/sz{n:06d}", price(n)) for n in range(NAMES))
        stentor.put(TOPIC, VALUE)
        expect_body(stentor, "/quotes/sz000042", price(42).encode())
        lines = [f'var hq_str_sz{n:06d}="{price(n)}";' for n in (7, 9_999)]
        looked_up = read(stentor, "/list=sz000007,sz009999").decode()
        if looked_up.rstrip("\n") != "\n".join(lines):
            raise MeasurementError(f"the look-up answered {looked_up!r}")
        series = alternate(bench.options, [
            varied("5 names", stentor, "/list=", NAMES_PER_LOOKUP),
            varied("one of 10,000", stentor, "/quotes/", 1),
            Subject("one name", stentor, TOPIC),
        ])
    what = f"look-up of {NAMES_PER_LOOKUP} names out of {NAMES:,}"
    return [
        cpu_row(what, series, "5 names", "one of 10,000", table.at_most(1.4)),
        cpu_row(what, series, "5 names", "one name", None),
    ]


def varied(name: str, stentor: Stentor, prefix: str, per_request: int) -> Subject:
    return Subject(name, stentor, "/", script="varied.lua", arguments=(prefix, per_request, NAMES))


def price(n: int) -> str:
    """Twelve bytes, different for every n."""
    return f"{n / 100:06.2f} +0.42"


def quotes_document() -> bytes:
    """A list of quotes as JSON, of about the size wanted, the same on every run."""
    draw = random.Random(20240602)
    quotes: list[dict[str, object]] = []
    while len(json.dumps(quotes)) < JSON_BYTES:
        quotes.append({
            "symbol": f"sz{len(quotes):06d}",
            "price": round(draw.uniform(1, 500), 2),
            "change": round(draw.uniform(-5, 5), 2),
            "volume": draw.randrange(10_000_000),
        })
    return json.dumps(quotes).encode()


def wait_for_gzip(server: Server, path: str, document: bytes) -> int:
    """Compression runs beside the worker: asks until it is there. Returns its size in bytes."""
    give_up = time.monotonic() + COMPRESSION_SECONDS_MAX
    while time.monotonic() < give_up:
        _, fields, body = client.ask(server.port, "GET", path, **{"Accept-Encoding": "gzip"})
        if fields["Content-Encoding"] == "gzip":
            if gzip.decompress(body) != document:
                raise MeasurementError(f"GET {path}: the gzip body holds something else")
            return len(body)
        time.sleep(0.05)
    raise MeasurementError(f"GET {path}: no gzip within {COMPRESSION_SECONDS_MAX} s")


def cpu_row(what: str, series: Series, subject: str, other: str,
            target: table.Target | None) -> table.Row:
    return series.row(f"{what}: CPU per request", subject, other, cpu_us, "{:.2f} us", target)


def carried_rows(what: str, series: Series, subject: str,
                 target: table.Target | None) -> list[table.Row]:
    """Requests per second against nginx, judged by what the server's core would carry.

    For a server that fills its core the two rows say the same. For one that does not, the second
    is what the load generator was able to ask for.
    """
    return [
        series.row(f"{what}: requests per second of its core", subject, "nginx",
                   carried_per_second, "{:,.0f}", target),
        table.ratio_row(
            f"{what}: requests/s as seen by the load", as_seen(series, subject),
            f"nginx {as_seen(series, 'nginx')}", series.ratio(subject, "nginx", per_second), None),
    ]


def as_seen(series: Series, subject: str) -> str:
    rate, share = series.median(subject, per_second), series.median(subject, core_share)
    return f"{rate:,.0f} (core {share:.0%} busy)"
