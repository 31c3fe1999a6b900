"""Clients that use a server while others attack it, each a `stentor bench` of its own.

They are open loops: a request counts from when it was due, and a message from when it was due to be
published. They have real-time priority where that is allowed, so that attackers, which share their
core, do not delay them.
"""

from dataclasses import dataclass
from typing import Any

from measure.bench import Bench
from measure.compare import Report, finish, first, start
from measure.servers import Stentor

VALUE, TOPIC = "/bystanders/value", "/bystanders/topic"
"""What they read. Readers by Server-Sent Events have TOPIC; the others topics of their own."""

READERS = {"sse": TOPIC, "ws": f"{TOPIC}-ws", "poll": f"{TOPIC}-poll"}
COUNT = 200
GETS_PER_SECOND = 1_000
ERRANDS_PER_SECOND = 8
SPARE_SECONDS = 30
LATE_REQUESTS_MAX = 2
"""So many may be under way when the time is over."""


@dataclass(frozen=True)
class Phase:
    """What the bystanders saw in a stretch of time: of each kind `p50_ms`, `p99_ms`, and how many
    were `unanswered`, refused or not delivered; and how many connections were `cut`."""

    figures: dict[str, Any]

    def p50(self, what: str) -> float:
        return self.figures[what]["p50_ms"]

    def p99(self, what: str) -> float:
        return self.figures[what]["p99_ms"]

    def unanswered(self, what: str) -> int:
        return self.figures[what]["unanswered"]


class Bystanders:
    """Clients of a server for so many seconds. Each kind comes from addresses of its own, so that a
    ceiling for an address is not met by them."""

    def __init__(self, bench: Bench, server: Stentor, messages_per_second: int,
                 seconds: float) -> None:
        public = f"http://127.0.0.1:{server.plain_port}"
        control = f"http://127.0.0.1:{server.control_port}"
        self.seconds, self.running = seconds, {}

        def run(name: str, kind: str, *options: object) -> None:
            network = f"127.2.{len(self.running)}.0/24"
            self.running[name] = start([
                *first(), bench.stentor, "bench", kind, *options, "--from", network,
                "--threads", 1, "--json"])

        def get(name: str, url: str, connections: int, rate: int, *options: str) -> None:
            run(name, "get", url, *options, "--connections", connections, "--rate", rate,
                "--duration", f"{seconds:g}s")

        for role, topic in READERS.items():
            run(role, "push", public + topic, "--publish", control + topic, "--publish-method",
                "PUT", "--as", role, "--connections", COUNT, "--rate", messages_per_second,
                "--messages", round(messages_per_second * seconds))
        get("get", public + VALUE, COUNT, GETS_PER_SECOND)
        get("control", f"{control}/-/status", ERRANDS_PER_SECOND, ERRANDS_PER_SECOND, "--close")
        get("newcomer", public + VALUE, ERRANDS_PER_SECOND, ERRANDS_PER_SECOND, "--close")

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def finish(self) -> Phase:
        """Waits for their ends. A problem of theirs is a figure, and no error."""
        reports = {name: finish(f"of {name}", process, self.seconds + SPARE_SECONDS, (0, 1))
                   for name, process in self.running.items()}
        deliveries = [of_deliveries(reports[role]) for role in READERS]
        gets = {name: of_gets(reports[name], rate * self.seconds) for name, rate in (
            ("get", GETS_PER_SECOND), ("control", ERRANDS_PER_SECOND),
            ("newcomer", ERRANDS_PER_SECOND))}
        publishing = [quantiles(reports[role]["delivery"]["publish"], 0) for role in READERS]
        return Phase({
            **gets, "delivery": worst(deliveries), "control": worst([gets["control"], *publishing]),
            "cut": sum(reports[name]["connections"]["dropped"] for name in ("get", *READERS))})


def quantiles(latency: Report, unanswered: float) -> dict[str, float]:
    return {"p50_ms": latency["p50_us"] / 1e3, "p99_ms": latency["p99_us"] / 1e3,
            "unanswered": unanswered}


def of_gets(report: Report, due: float) -> dict[str, float]:
    """Requests that were due and have no answer, or another one than 200."""
    good = sum(count for status, count in report["requests"]["statuses"] if status == 200)
    missing = round(due - good)
    return quantiles(report["requests"]["latency"],
                     missing if missing > LATE_REQUESTS_MAX or report["errors"] else 0)


def of_deliveries(report: Report) -> dict[str, float]:
    delivery = report["delivery"]
    missing = delivery["expected"] - delivery["delivered"]
    return quantiles(delivery["latency"], max(missing, COUNT - delivery["readers_complete"]))


def worst(kinds: list[dict[str, float]]) -> dict[str, float]:
    """The slowest of several kinds, with what is missing of all."""
    return {"p50_ms": max(kind["p50_ms"] for kind in kinds),
            "p99_ms": max(kind["p99_ms"] for kind in kinds),
            "unanswered": sum(kind["unanswered"] for kind in kinds)}
