"""Small files on connections that stay: one, one in gzip, and many, against nginx."""

import time
from collections.abc import Sequence

from . import site, table
from .bench import Bench, MeasurementError
from .client import Client
from .load import CONNECTIONS, Subject, alternate, carried_per_second, cpu_us
from .process import Server
from .reading import carried_rows, cpu_row, wait_for_gzip
from .servers import Floor, NginxFiles, Stentor, expect_body, get

ACCEPT_GZIP = "Accept-Encoding: gzip"
WARM_UP_TURNS = 2
SETTLE_SECONDS = 1


def small(bench: Bench) -> list[table.Row]:
    """A file of 1 KB, against nginx and the floor; one of two targets must be reached."""
    path = site.small()
    with serving(bench) as stentor, NginxFiles(site.ROOT) as nginx:
        for server in (stentor, nginx):
            warm_up(server, [path])
        with Floor(bench, get(stentor, path)) as floor:
            series = alternate(bench.options, [
                Subject(server.name, server, path, CONNECTIONS)
                for server in (stentor, nginx, floor)
            ])
    what = f"file of 1 KB, {CONNECTIONS} connections"
    return [
        *carried_rows(what, series, "stentor", None),
        cpu_row(what, series, "stentor", "floor", None),
        table.either_row(f"{what}: one of the two", [
            ("nginx", series.ratio("stentor", "nginx", carried_per_second), table.at_least(1.6)),
            ("floor", series.ratio("stentor", "floor", cpu_us), table.at_most(1.10)),
        ]),
    ]


def gzipped(bench: Bench) -> list[table.Row]:
    """A page of 15 KB as gzip: from the file beside it, and compressed by Stentor itself.

    nginx has the file beside it in both rows: what it would compress, it would compress each time.
    """
    path, alone = site.page(), site.page_alone()
    page, beside = site.content(path), site.content(f"{path}.gz")
    with serving(bench) as stentor, NginxFiles(site.ROOT) as nginx:
        for server in (stentor, nginx):
            wait_for_gzip(server, path, page)
            expect_body(server, path, beside, **{"Accept-Encoding": "gzip"})
        own_bytes = wait_for_gzip(stentor, alone, page)
        series = alternate(bench.options, [
            Subject("stentor", stentor, path, CONNECTIONS, (ACCEPT_GZIP,)),
            Subject("nginx", nginx, path, CONNECTIONS, (ACCEPT_GZIP,)),
            Subject("alone", stentor, alone, CONNECTIONS, (ACCEPT_GZIP,)),
        ])
    target = table.at_least(1.4)
    return [
        *carried_rows(f"page of 15 KB, .gz beside it ({len(beside):,} B)", series, "stentor",
                      target),
        *carried_rows(f"page of 15 KB, own gzip ({own_bytes:,} B)", series, "alone", target),
    ]


def images(bench: Bench) -> list[table.Row]:
    """10,000 files of 4 KB, each as likely as any other."""
    paths = site.images()
    with serving(bench) as stentor, NginxFiles(site.ROOT) as nginx:
        for server in (stentor, nginx):
            warm_up(server, paths)
        series = alternate(bench.options, [
            Subject(server.name, server, paths[0], CONNECTIONS, script="files.lua",
                    arguments=(site.IMAGE_FORMAT, len(paths)))
            for server in (stentor, nginx)
        ])
    return carried_rows(f"{len(paths):,} files of 4 KB at random", series, "stentor",
                        table.at_least(1.4))


def serving(bench: Bench) -> Stentor:
    return Stentor(bench, config="", root=site.ROOT)


def warm_up(server: Server, paths: Sequence[str]) -> None:
    """Asks for each file, waits, and asks again; each answer must be the file.

    Stentor takes a file into memory after the first request for it, beside the worker.
    """
    for _ in range(WARM_UP_TURNS):
        with Client(server.port) as client:
            for path in paths:
                if client.read(path) != site.content(path):
                    raise MeasurementError(f"{server.name}: GET {path} is not the file")
        time.sleep(SETTLE_SECONDS)
