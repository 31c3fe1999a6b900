"""What others must not pay for: readers that stop reading, and a fan-out beside requests."""

import threading
import time

from . import table
from .bench import Bench, MeasurementError
from .compare import (
    LAST,
    Contestant,
    Report,
    await_connections,
    check,
    command_of,
    finish,
    start,
    steady_gets,
)
from .load import Series, Usage, foreign_share, warn_of_others
from .servers import QUIET_STREAMS_CONFIG, Stentor

TOPIC = "/bench/stalled"
READERS = 2_000
LATEST_READERS, LATEST_BYTES = 100, 32_000
STALLED_PERCENT = 20
PER_SECOND = 20
# The sockets of a reader hold 2.5 MB: within a minute it is sent more.
MESSAGE_BYTES = 4_000

# A queue for each stalled reader would be 2 GB. The bound is what the default rule allows the
# history of a topic.
GROWTH_BYTES_MAX = 1 << 20

# More than a server could keep of late messages of all topics together, if it does so.
OTHER_TOPIC = "/bench/other"
OTHER_MESSAGES = 10_000
# Before the stalled readers read again.
OTHER_LEAD_SECONDS = 1

FAIR_READERS = 15_000
FAIR_PER_SECOND = 4
FAIR_TOPIC = "/bench/fair"
VALUE_TOPIC = "/quotes/aapl"
GETS_PER_SECOND = 1_000


def contestant(stentor: Stentor, topic: str) -> Contestant:
    return Contestant("stentor", stentor, topic,
                      f"http://127.0.0.1:{stentor.control_port}{topic.partition('?')[0]}")


def push_command(bench: Bench, stentor: Stentor, topic: str, readers: int, rate: int,
                 messages: float, *options: object) -> list[str]:
    return command_of(bench, "push", [contestant(stentor, topic)], "--publish-method", "PUT",
                      "--connections", readers, "--rate", rate, "--messages",
                      max(1, round(messages)), *options)


def stalled(bench: Bench) -> list[table.Row]:
    """2,000 readers, one in five of which stops reading and later reads again; then some with
    mode=latest, which nearly all stop.

    The others are judged by what readers had before the stall and after it, while all read. Much is
    published of another topic twice: before, so that what the server keeps for everybody is full
    and not taken for what stalled readers cost; and before these wake, so that they find nothing of
    their topic but its history.
    """
    seconds = bench.options.stall_seconds

    def run(stentor: Stentor, seconds: float, *options: object) -> Report:
        command = push_command(bench, stentor, TOPIC, READERS, PER_SECOND, seconds * PER_SECOND,
                               "--size", MESSAGE_BYTES, *options)
        before = Usage.now(stentor)
        report = finish("push", start(command), seconds + 120)
        warn_of_others([foreign_share(before, Usage.now(stentor))])
        check("push", report)
        return report

    with Stentor(bench, config=QUIET_STREAMS_CONFIG) as stentor:
        run(stentor, 1)
        fill = push_command(bench, stentor, OTHER_TOPIC, 1, 20_000, OTHER_MESSAGES,
                            "--size", MESSAGE_BYTES)
        finish("push", start(fill), 60)
        calm = [run(stentor, max(1, seconds / 2))]
        wake = threading.Timer(max(0, seconds - OTHER_LEAD_SECONDS), lambda: stentor.put_many(
            (OTHER_TOPIC, "x" * MESSAGE_BYTES) for _ in range(OTHER_MESSAGES)))
        wake.start()
        found = run(stentor, seconds, "--stall", f"{STALLED_PERCENT}%")
        wake.join()
        calm.append(run(stentor, max(1, seconds / 2)))
        command = push_command(bench, stentor, f"{TOPIC}?mode=latest", LATEST_READERS, PER_SECOND,
                               seconds / 4 * PER_SECOND, "--size", LATEST_BYTES, "--stall", "99%")
        # The few that do not stall may be conflated, too: then bench reports messages missing.
        latest = finish("push", start(command), seconds + 120, statuses=(0, 1))["delivery"]
    calm_ms, p99_ms = (Series({"": reports}).median("", p99) for reports in (calm, [found]))
    woken = found["delivery"]["stalled"]
    if not woken["missing"]:
        raise MeasurementError("no stalled reader missed anything: stall them for longer")
    sizes = [point["process_bytes"] for point in found["timeline"] if "process_bytes" in point]
    grown = max(sizes) - found["memory"]["process_resident_bytes"]
    what = f"{STALLED_PERCENT} % of {READERS:,} readers stalled for {seconds} s"
    stalled_all = found["delivery"]["readers_stalled"]
    untold = max(0, stalled_all - woken["gaps_told"])
    behind = (stalled_all + latest["readers_stalled"] - woken["current"]
              - latest["stalled"]["current"])
    return [
        table.absolute_row(f"{what}: growth of process memory", f"{grown / 1024:,.0f} KiB", grown,
                           table.Target("<= 1 MiB", lambda bytes: bytes <= GROWTH_BYTES_MAX)),
        table.ratio_row(f"{what}: p99 of the others", f"{p99_ms:.1f} ms",
                        f"none stalled {calm_ms:.1f} ms", p99_ms / calm_ms, table.at_most(1.2)),
        table.absolute_row(f"{what}: then not on the newest", f"{behind}", behind,
                           table.at_most(0)),
        table.absolute_row(f"{what}: not told of a gap",
                           f"{untold} ({woken['missing']:,} messages missed)", untold,
                           table.at_most(0)),
        table.note(f"{what}: mode=latest gets until the newest",
                   f"{latest['stalled']['delivered'] / latest['readers_stalled']:.0f} messages"),
    ]


def p99(report: Report) -> float:
    return report["delivery"]["latency"]["p99_us"] / 1e3


def fair(bench: Bench) -> list[table.Row]:
    """GETs at a steady rate on a worker that also tells 15,000 readers four times a second.

    wrk asks again only when it was answered, so a server that pauses is asked less while it pauses
    and its worst moments are hardly counted.
    """
    seconds = bench.options.rounds * bench.options.seconds

    def gets(seconds: int) -> dict[str, float]:
        return steady_gets(bench, stentor.port, VALUE_TOPIC, GETS_PER_SECOND, seconds, 64)

    with Stentor(bench, config=QUIET_STREAMS_CONFIG) as stentor:
        stentor.put(VALUE_TOPIC, b"189.98 +0.42")
        at_rest = gets(min(seconds, 5))
        # `bench push` publishes once all readers are connected.
        pushing = start(push_command(bench, stentor, FAIR_TOPIC, FAIR_READERS, FAIR_PER_SECOND,
                                     (seconds + 3) * FAIR_PER_SECOND))
        try:
            await_connections(stentor.control_port, FAIR_READERS)
            before, began = stentor.cpu_seconds(), time.monotonic()
            found = gets(seconds)
            busy = (stentor.cpu_seconds() - before) / (time.monotonic() - began)
        finally:
            report = finish("push", pushing, seconds + 60)
        check("push", report)
    what = f"GETs beside a fan-out to {FAIR_READERS:,}, {FAIR_PER_SECOND}/s"
    return [
        table.absolute_row(f"{what}: p99", f"{found['p99_us'] / 1e3:.2f} ms",
                           found["p99_us"] / 1e3, table.below(5, " ms"),
                           f"no fan-out {at_rest['p99_us'] / 1e3:.2f} ms"),
        table.note(f"{what}: median, maximum",
                   f"{found['p50_us'] / 1e3:.2f} ms, {found['max_us'] / 1e3:.2f} ms"),
        table.note(f"{what}: the worker's core; the last reader after",
                   f"{busy:.0%}; {LAST.of(report):.0f} ms"),
    ]
