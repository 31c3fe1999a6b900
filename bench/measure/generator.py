"""The load generator: whether `stentor bench` finds what wrk and readers.c find, and what it takes
itself."""

from dataclasses import dataclass
from pathlib import Path

from . import table
from .bench import Bench, MeasurementError
from .compare import CPU_EACH, Contestant, compare, push
from .fanout import Batches
from .load import Series, Subject, alternate, cpu_us, load_us, per_second
from .process import Server
from .push import MESSAGE_BYTES, Readers
from .reading import TOPIC, VALUE
from .servers import QUIET_STREAMS_CONFIG, Floor, Nginx, Stentor, get

IDLE_CONNECTIONS = 15_000
READERS, PER_SECOND = 5_000, 10
STREAM = "/bench/readers"
VALUES = 200
VALUES_PATH = "/-/values?prefix=/quotes/&names=" + ",".join(f"v{n:03d}" for n in range(VALUES))
AGREEMENT = table.Target("0.90 to 1.10", lambda ratio: 0.9 <= ratio <= 1.1)


@dataclass(frozen=True)
class OwnSubject(Subject):
    """The same load as wrk's, from `stentor bench get`."""

    program: Path = Path("stentor")

    def command(self, seconds: int) -> list[object]:
        fields = (word for field in self.fields for word in ("--header", field))
        return [self.program, "bench", "get",
                f"http://127.0.0.1:{self.server.port}{self.path}", "--threads", 1,
                "--connections", self.connections, "--duration", f"{seconds}s", "--json", *fields]

    def read_report(self, report: str) -> tuple[int, float]:
        found = self.read_json(report)
        requests = found["requests"]
        if found["errors"] or any(status != 200 for status, _ in requests["statuses"]):
            raise MeasurementError(f"{self.name}: {found['errors']} {requests['statuses']}")
        return requests["completed"], requests["per_second"]


def generator(bench: Bench) -> list[table.Row]:
    """`stentor bench` against wrk and readers.c on the same servers.

    Where a request is work for the server, both wait for it and must find the same. The floor
    leaves the load generator the most to do: there ours must not be the bottleneck before wrk is.
    """
    with Stentor(bench) as stentor, Nginx(VALUE) as nginx:
        stentor.put(TOPIC, VALUE)
        stentor.put_many((f"/quotes/v{n:03d}", VALUE.decode()) for n in range(VALUES))
        get(stentor, VALUES_PATH)
        with Floor(bench, get(stentor, TOPIC)) as floor:
            series = alternate(bench.options, [
                *pair(bench, nginx, "/compressed", "Accept-Encoding: gzip"),
                *pair(bench, stentor, VALUES_PATH),
                *pair(bench, floor, TOPIC),
            ])
        held = compare(bench, "hold", [Contestant("stentor", stentor, TOPIC)], "--as", "idle",
                       "--connections", IDLE_CONNECTIONS, "--duration", "1s")
    each = held.median("stentor", lambda report: report["memory"]["own_bytes"]) / IDLE_CONNECTIONS
    return [
        rate_row("requests/s of nginx compressing", series, "nginx", AGREEMENT),
        rate_row(f"requests/s of stentor for {VALUES} values", series, "stentor", AGREEMENT),
        rate_row("requests/s of the floor", series, "floor", table.at_least(0.9)),
        series.row("generator's CPU per request of the floor", "bench, floor", "wrk, floor",
                   load_us, "{:.2f} us", label="wrk"),
        table.absolute_row(f"bench hold: memory for each of {IDLE_CONNECTIONS:,} connections",
                           f"{each:.0f} B", each, table.at_most(250, " B")),
        readers_row(bench),
    ]


def readers_row(bench: Bench) -> table.Row:
    """Compares the server's CPU per delivery to readers.c and to `stentor bench push`."""
    with Stentor(bench, config=QUIET_STREAMS_CONFIG) as stentor:
        own = Contestant("bench", stentor, STREAM,
                         f"http://127.0.0.1:{stentor.control_port}{STREAM}")
        stentor.put(STREAM, VALUE)
        with Readers(bench, stentor, STREAM, READERS) as readers:
            other = alternate(bench.options, [
                Batches("readers.c", stentor, readers, stentor.control_port, (STREAM,),
                        batches_per_second=PER_SECOND)])
        found = push(bench, [own], "sse", MESSAGE_BYTES, PER_SECOND, READERS)
    costs = {"bench": [found.median("bench", CPU_EACH.of)],
             "readers.c": [other.median("readers.c", cpu_us)]}
    return Series(costs).row(f"CPU per delivery to {READERS:,} readers", "bench", "readers.c",
                             float, "{:.2f} us", AGREEMENT)


def pair(bench: Bench, server: Server, path: str, *fields: str) -> tuple[Subject, Subject]:
    """The same load from either."""
    return (Subject(f"wrk, {server.name}", server, path, fields=fields),
            OwnSubject(f"bench, {server.name}", server, path, fields=fields,
                       program=bench.stentor))


def rate_row(what: str, series: Series, server: str, target: table.Target) -> table.Row:
    return series.row(f"{what}: as bench get sees them", f"bench, {server}", f"wrk, {server}",
                      per_second, "{:,.0f}", target, label="wrk")
