"""What others must not pay for: readers that stop reading, and a fan-out beside requests."""

import subprocess
import time

from . import table
from .bench import Bench, MeasurementError
from .compare import latencies, steady_gets
from .load import Usage, foreign_share, warn_of_others
from .push import Readers, Report, message, pace
from .servers import QUIET_STREAMS_CONFIG, Publisher, Stentor

TOPIC = "/bench/stalled"
READERS = 2_000
STALLED_PERCENT = 20
PER_SECOND = 20
MESSAGE_BYTES = 1_000
RECEIVE_BYTES = 16 * 1024
CATCH_UP_SECONDS = 20

# Half a message for each stalled reader would be 200 KB, a queue for each 480 MB. The bound is what
# the default rule allows the history of a topic.
GROWTH_BYTES_MAX = 1 << 20

# More than a server could keep of late messages of all topics together, if it does so.
OTHER_TOPIC = "/bench/other"
OTHER_MESSAGES = 10_000

FAIR_READERS = 15_000
FAIR_PER_SECOND = 4
FAIR_TOPIC = "/bench/fair"
VALUE_TOPIC = "/quotes/aapl"
GETS_PER_SECOND = 1_000


class Numbered:
    """Publishes messages of one topic with growing numbers."""

    def __init__(self, stentor: Stentor, topic: str, length: int) -> None:
        self.stentor, self.topic, self.length = stentor, topic, length
        self.last = 0
        stentor.put(topic, message(0, length))

    def publish_for(self, seconds: float, per_second: float) -> int:
        """Returns how many were published."""
        count = max(1, round(seconds * per_second))
        with Publisher(self.stentor.control_port) as publisher:
            pace(count, per_second, lambda _: self.publish(publisher))
        return count

    def publish(self, publisher: Publisher) -> None:
        self.last += 1
        publisher.put(self.topic, message(self.last, self.length))

    def publish_at_once(self, count: int) -> None:
        self.last += count
        self.stentor.put_many((self.topic, message(self.last, self.length).decode())
                              for _ in range(count))


def stalled(bench: Bench) -> list[table.Row]:
    """2,000 readers, half with mode=latest; one in five stops reading, and later reads again.

    The others are judged by the same readers before the stall and after it. Much is published of
    another topic twice: before, so that what the server keeps for everybody is full and not taken
    for what stalled readers cost; and before these wake, so that they find nothing of their topic
    but its history.
    """
    seconds = bench.options.stall_seconds
    with Stentor(bench, config=QUIET_STREAMS_CONFIG) as stentor, \
            Readers(bench, stentor, [OTHER_TOPIC], 1) as other_reader, \
            Readers(bench, stentor, [TOPIC, f"{TOPIC}?mode=latest"], READERS, "--stall",
                    str(STALLED_PERCENT), "--rcvbuf", str(RECEIVE_BYTES)) as readers:
        numbered = Numbered(stentor, TOPIC, MESSAGE_BYTES)
        other = Numbered(stentor, OTHER_TOPIC, MESSAGE_BYTES)
        readers.hold(READERS)
        other_reader.hold(1)
        published(readers, numbered, 1)
        memory_empty = stentor.memory().resident
        other.publish_at_once(OTHER_MESSAGES)
        calm_before = published(readers, numbered, max(1, seconds / 2))
        memory_before = stentor.memory().resident
        readers.stall()
        meanwhile = published(readers, numbered, seconds)
        other.publish_at_once(OTHER_MESSAGES)
        grown = stentor.memory().resident - memory_before
        readers.mark()
        readers.resume(CATCH_UP_SECONDS)
        woken = readers.report()
        if not (woken.told or woken.stalled_conflated or woken.silent):
            raise MeasurementError("no stalled reader missed anything: stall them for longer")
        calm_after = published(readers, numbered, max(1, seconds / 2))
    calm_ms = (calm_before.p99_ns + calm_after.p99_ns) / 2e6
    what = f"{STALLED_PERCENT} % of {READERS:,} readers stalled for {seconds} s"
    return [
        table.absolute_row(f"{what}: growth of process memory",
                           f"{grown / 1024:,.0f} KiB (before, for everybody, "
                           f"{(memory_before - memory_empty) / 1024:,.0f} KiB)", grown,
                           table.Target("<= 1 MiB", lambda bytes: bytes <= GROWTH_BYTES_MAX)),
        table.ratio_row(f"{what}: p99 of the others", f"{meanwhile.p99_ns / 1e6:.1f} ms",
                        f"none stalled {calm_ms:.1f} ms", meanwhile.p99_ns / 1e6 / calm_ms,
                        table.at_most(1.2)),
        *waking_rows(what, woken),
    ]


def published(readers: Readers, numbered: Numbered, seconds: float) -> Report:
    """Publishes for so long; all that do not stall must have each message once."""
    readers.mark()
    before = Usage.now(numbered.stentor, readers)
    count = numbered.publish_for(seconds, PER_SECOND)
    readers.await_message(numbered.last)
    warn_of_others([foreign_share(before, Usage.now(numbered.stentor, readers))])
    report = readers.report()
    report.expect_each_once("stentor", count)
    return report


def waking_rows(what: str, woken: Report) -> list[table.Row]:
    both = (woken.stalled_all, woken.stalled_latest)
    readers = sum(kind["readers"] for kind in both)
    wrong = sum(kind["behind"] + kind["ended"] for kind in both)
    most = woken.stalled_latest["messages_max"]
    return [
        table.absolute_row(f"{what}: then not on the newest", f"{wrong} of {readers}", wrong,
                           table.at_most(0)),
        table.absolute_row(f"{what}: missed without a word",
                           f"{woken.silent:,} (told {woken.told:,}, conflated "
                           f"{woken.stalled_conflated:,})", woken.silent, table.at_most(0)),
        table.absolute_row(f"{what}: mode=latest gets until the newest", f"at most {most}", most,
                           None),
    ]


def fair(bench: Bench) -> list[table.Row]:
    """GETs at a steady rate on a worker that also tells 15,000 readers four times a second.

    wrk asks again only when it was answered, so a server that pauses is asked less while it pauses
    and its worst moments are hardly counted.
    """
    seconds = bench.options.rounds * bench.options.seconds
    with Stentor(bench, config=QUIET_STREAMS_CONFIG) as stentor:
        stentor.put(VALUE_TOPIC, b"189.98 +0.42")
        numbered = Numbered(stentor, FAIR_TOPIC, 64)
        with Readers(bench, stentor, [FAIR_TOPIC], FAIR_READERS) as readers:
            readers.hold(FAIR_READERS)
            before = Usage.now(stentor, readers)
            at_rest = latencies(gets(bench, stentor, min(seconds, 5)), seconds)
            warn_of_others([foreign_share(before, Usage.now(stentor, readers))])
            readers.mark()
            before, began = Usage.now(stentor, readers), time.monotonic()
            with gets(bench, stentor, seconds) as beside:
                count = numbered.publish_for(seconds, FAIR_PER_SECOND)
                found = latencies(beside, seconds)
            readers.await_message(numbered.last)
            after = Usage.now(stentor, readers)
            report = readers.report()
            report.expect_each_once("stentor", count)
    busy = (after.server - before.server) / (time.monotonic() - began)
    warn_of_others([foreign_share(before, after)])
    what = f"GETs beside a fan-out to {FAIR_READERS:,}, {FAIR_PER_SECOND}/s"
    last_ms = max(report.last_ns.values()) / 1e6
    return [
        table.absolute_row(f"{what}: p99", f"{found['p99_us'] / 1e3:.2f} ms",
                           found["p99_us"] / 1e3, table.below(5, " ms"),
                           f"no fan-out {at_rest['p99_us'] / 1e3:.2f} ms"),
        table.absolute_row(f"{what}: median, maximum", f"{found['p50_us'] / 1e3:.2f} ms, "
                           f"{found['max_us'] / 1e3:.2f} ms", 0, None),
        table.absolute_row(f"{what}: the worker's core; the last reader after",
                           f"{busy:.0%}; at most {last_ms:.0f} ms", 0, None),
    ]


def gets(bench: Bench, stentor: Stentor, seconds: int) -> subprocess.Popen[str]:
    return steady_gets(bench, stentor.port, VALUE_TOPIC, GETS_PER_SECOND, seconds, 64)
