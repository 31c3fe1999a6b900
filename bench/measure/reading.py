"""Reading values on connections that stay: plain, pipelined, compressed, looked up."""

import gzip
import json
import random
import time

from . import table
from .bench import Bench, MeasurementError
from .load import (
    CONNECTIONS,
    Series,
    Subject,
    alternate,
    carried_per_second,
    core_share,
    cpu_us,
    per_second,
)
from .servers import Floor, Nginx, Stentor, body_of, expect_body, get

VALUE = b"189.98 +0.42"
TOPIC = "/quotes/aapl"
PIPELINE_DEPTH = 16
NAMES = 10_000
NAMES_PER_LOOKUP = 5
JSON_BYTES = 15_000
COMPRESSION_SECONDS_MAX = 5


def requests(bench: Bench, connections: int = CONNECTIONS) -> list[table.Row]:
    """Server CPU per keep-alive GET of the 12-byte value, against floor and nginx."""
    with Stentor(bench) as stentor, Nginx(VALUE) as nginx:
        stentor.put(TOPIC, VALUE)
        expect_body(stentor, TOPIC, VALUE)
        expect_body(nginx, TOPIC, VALUE)
        with Floor(bench, get(stentor, TOPIC)) as floor:
            series = alternate(bench.options, [
                Subject(server.name, server, TOPIC, connections)
                for server in (stentor, nginx, floor)
            ])
    many = connections > CONNECTIONS
    floor_target = table.at_most(1.15 if many else 1.10)
    nginx_target = None if many else table.below(1.0)
    what = f"GET of 12 bytes, {connections:,} connections"
    return [
        cpu_row(what, series, "stentor", "floor", floor_target),
        cpu_row(what, series, "stentor", "nginx", nginx_target),
    ]


def pipelined(bench: Bench) -> list[table.Row]:
    """Requests per second with 16 GETs in each write, against nginx."""
    with Stentor(bench) as stentor, Nginx(VALUE) as nginx:
        stentor.put(TOPIC, VALUE)
        series = alternate(bench.options, [
            Subject(server.name, server, TOPIC, script="pipelined.lua",
                    arguments=(str(PIPELINE_DEPTH),))
            for server in (stentor, nginx)
        ])
    return [series.row(f"{PIPELINE_DEPTH} pipelined GETs: requests/s", "stentor", "nginx",
                       per_second, "{:,.0f}", table.at_least(4))]


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
        looked_up = body_of(get(stentor, "/list=sz000007,sz009999")).decode()
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
    return Subject(name, stentor, "/", script="varied.lua",
                   arguments=(prefix, str(per_request), str(NAMES)))


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


def wait_for_gzip(stentor: Stentor, path: str, document: bytes) -> int:
    """Compression runs beside the worker: asks until it is there. Returns its size in bytes."""
    give_up = time.monotonic() + COMPRESSION_SECONDS_MAX
    while time.monotonic() < give_up:
        response = get(stentor, path, "Accept-Encoding: gzip")
        if b"content-encoding: gzip" in response.partition(b"\r\n\r\n")[0].lower():
            body = body_of(response)
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
