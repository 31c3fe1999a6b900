"""One attack on one fresh server: what it costs, and what the bystanders feel of it."""

import contextlib
import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any

from attacker import CUT, OPEN, OPENED, SENT, TALLIES, Attacker, become_attacker
from attacks import Attack, Publisher, make_files
from bystanders import READERS, VALUE, Bystanders, Phase
from measure import client, host
from measure.bench import OUT_DIR, Bench, MeasurementError
from measure.load import FOREIGN_SHARE_MAX, Usage, foreign_share
from measure.process import cpu_seconds_of, memory_fields
from measure.servers import Stentor

LEAD_SECONDS = 1
"""Bystanders are there so long before the attack."""

QUIET_SECONDS = 4
QUIET_TIMES = 3
"""What happens once on a host in so short a time is not what quiet is: the best one counts."""

SETTLED_SECONDS = 60
SAMPLE_SECONDS = 0.2
STOP_SECONDS_MAX = 10
SPARE_SECONDS = 2
"""Attackers go on for longer than is measured, until they are stopped."""

BYSTANDERS_BOUND_MS = 5.0
CONTROL_BOUND_MS = 10.0
MEMORY_SPARE_MIB = 64
TCP_PRESSURE_SHARE_MAX = 1 / 3

ATTACKER_NICE = 5
"""They yield to the rest of the load. The bystanders have real-time priority in any case."""

SERVER_NICE = -11
"""Where it is allowed: so that what else runs on the host is measured less."""

COLD_FILE_BYTES = 3_000
COLD_FILES = 400
COLD_EVERY_SECONDS = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


class Forked:
    """A process forked for one purpose, and ended by its own pid."""

    def __init__(self, seconds: float, nice: int, work: Callable[[], None]) -> None:
        def run() -> None:
            become_attacker(seconds)
            os.nice(nice)
            work()

        self.process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
        self.process.start()

    def cpu_seconds(self) -> float:
        try:
            return cpu_seconds_of(self.process.pid)
        except OSError:
            return 0.0

    def expect_alive(self) -> None:
        if not self.process.is_alive():
            raise MeasurementError("an attacker or a publisher has ended by itself")

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(STOP_SECONDS_MAX)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Asker(threading.Thread, AbstractContextManager["Asker"]):
    """Asks something again and again, and counts what was not answered as it should be."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self.ask = ask
        self.counts = (0, 0)
        """Asked, and failed of these."""

        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(COLD_EVERY_SECONDS):
            asked, failed = self.counts
            self.counts = (asked + 1, failed + (not self.ask()))

    def __enter__(self) -> "Asker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join(STOP_SECONDS_MAX)


class ColdFiles:
    """A visitor who came before the attack, and asks for files that are not in memory."""

    def __init__(self, port: int) -> None:
        self.client = client.Client(port, timeout=5, source="127.3.0.2")
        self.number = 0
        self.ask()

    def ask(self) -> bool:
        self.number += 1
        with contextlib.suppress(MeasurementError):
            return len(self.client.read(f"/cold/{self.number}.txt")) == COLD_FILE_BYTES
        return False


@dataclass
class Stage:
    """A fresh server, ready to be attacked."""

    server: Stentor

    def status(self) -> dict[str, Any]:
        return client.status(self.server.control_port)

    def memory_mib(self) -> float:
        """Anonymous memory. Unlike smaps_rollup, asking for it does not hold the server up."""
        status = memory_fields(f"/proc/{self.server.pid}/status")
        if "RssAnon" not in status:
            raise MeasurementError(f"the server has ended: {self.server.last_words()}")
        return status["RssAnon"] / MIB

    def favour(self) -> None:
        """Puts the server before others on the host: its session, and its threads as they are."""
        try:
            Path(f"/proc/{self.server.pid}/autogroup").write_text(str(SERVER_NICE))
        except OSError:
            pass  # the kernel may have no groups, or not allow it
        for thread in Path(f"/proc/{self.server.pid}/task").iterdir():
            try:
                os.setpriority(os.PRIO_PROCESS, int(thread.name), SERVER_NICE)
            except OSError:
                return


@dataclass(kw_only=True)
class Outcome:
    """All figures of one attack."""

    attack: str
    quiet: Phase
    memory_empty_mib: float
    """Before anything was published."""

    server_cpu_quiet: float
    during: Phase | None = None
    seconds: float = 0
    sent_per_second: float = 0
    opened: int = 0
    connections: int = 0
    """At most, as `memory_peak_mib` and `tcp_memory_mib`."""

    cut: int = 0
    memory_before_mib: float = 0
    memory_peak_mib: float = 0
    memory_after_mib: float = 0
    tcp_memory_mib: float = 0
    settled_seconds: float = 0
    messages_kept: int = 0
    server_cpu: float = 0
    files: tuple[int, int] = (0, 0)
    """Asked for, and of these not answered as they should be; so with `probes`."""

    probes: tuple[int, int] = (0, 0)
    foreign_share: float = 0
    verdicts: dict[str, bool] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        return [what for what, reached in self.verdicts.items() if not reached]

    @property
    def is_doubtful(self) -> bool:
        """Whether something else on the host spoiled the figures."""
        return self.foreign_share > FOREIGN_SHARE_MAX


def quietest(phases: list[Phase]) -> Phase:
    return min(phases, key=lambda phase: phase.p99("get") + phase.p99("delivery"))


def judge(outcome: Outcome, attack: Attack, tcp_bound_mib: float) -> dict[str, bool]:
    """Each bound, and whether it was kept."""
    during, quiet = outcome.during, outcome.quiet
    memory_bound = outcome.memory_before_mib + MEMORY_SPARE_MIB

    def bystanders(what: str) -> bool:
        return during.p99(what) <= max(2 * quiet.p99(what), BYSTANDERS_BOUND_MS)

    verdicts = {
        "gets": bystanders("get") and during.unanswered("get") == 0,
        "deliveries": bystanders("delivery") and during.unanswered("delivery") == 0,
        "control": during.p99("control") <= CONTROL_BOUND_MS
        and during.unanswered("control") == 0,
        "memory": outcome.memory_peak_mib <= memory_bound + attack.settings_mib,
        "memory-back": outcome.memory_after_mib <= memory_bound + attack.stays_mib,
        "cut": during.figures["cut"] == 0,
        "files": outcome.files[1] == 0,
    }
    if attack.newcomers_judged:
        verdicts["newcomers"] = during.unanswered("newcomer") == 0
    if attack.probe:
        verdicts["probe"] = outcome.probes[1] == 0
    if attack.kept_bytes_max:
        growth = max(outcome.memory_peak_mib, outcome.memory_after_mib) - outcome.memory_empty_mib
        # What was published meanwhile stays, so that is the bound instead.
        del verdicts["memory"], verdicts["memory-back"]
        verdicts["kept"] = growth * MIB / outcome.messages_kept <= attack.kept_bytes_max
    if attack.tcp_memory_judged:
        verdicts["tcp-memory"] = outcome.tcp_memory_mib <= tcp_bound_mib
    return verdicts


def prefix_for(attack: Attack) -> tuple[str, ...]:
    """In a session of its own the server's priority counts for itself (sched(7), autogroup)."""
    limit = (f"--nofile={attack.files_max}:{attack.files_max}",) if attack.files_max else ()
    return ("setsid", *(("prlimit", *limit) if limit else ()), *tcp_limit_for(attack))


def tcp_limit_for(attack: Attack) -> tuple[str, ...]:
    """Shows the server another `tcp_mem`, in a mount namespace of its own. That takes root."""
    if attack.tcp_limit_mib is None:
        return ()
    pages = int((tcp_memory_mib() + attack.tcp_limit_mib) * MIB) // PAGE_BYTES
    file = OUT_DIR / "tcp_mem"
    file.write_text(f"{pages * 3 // 4}\t{pages}\t{pages * 3 // 2}\n")
    script = 'mount --bind "$0" /proc/sys/net/ipv4/tcp_mem && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, str(file))


def run(bench: Bench, attack: Attack, seconds: float) -> Outcome:
    """The whole of it. Whatever happens, what was started is stopped."""
    root = OUT_DIR / "attack-site"
    make_files(root, {f"cold/{at}.txt": COLD_FILE_BYTES for at in range(1, COLD_FILES)})
    make_files(root, attack.files)
    with ExitStack() as stack:
        server = stack.enter_context(Stentor(bench, config=attack.config, root=root,
                                             prefix=prefix_for(attack),
                                             secured=attack.over_tls))
        stage = Stage(server)
        stage.favour()
        for topic in (VALUE, *READERS.values()):
            server.put(topic, b"hello, world")
        memory_empty = stage.memory_mib()
        attack.prepare(stage)
        whole = (QUIET_SECONDS + LEAD_SECONDS) * QUIET_TIMES + seconds + SETTLED_SECONDS
        company = []
        if attack.company:
            publisher = Publisher(server.control_port)
            company.append(Forked(whole, 0, lambda: attack.company(publisher)))
            stack.callback(company[0].stop)

        def bystanders(seconds: float) -> Bystanders:
            begun = Bystanders(bench, server, attack.messages_per_second, seconds + LEAD_SECONDS)
            stack.callback(begun.stop)
            return begun

        used, phases = server.cpu_seconds(), []
        for _ in range(QUIET_TIMES):
            phases.append(bystanders(QUIET_SECONDS).finish())
        cpu = (server.cpu_seconds() - used) / ((QUIET_SECONDS + LEAD_SECONDS) * QUIET_TIMES)
        outcome = Outcome(attack=attack.name(), quiet=quietest(phases),
                          memory_empty_mib=memory_empty, server_cpu_quiet=cpu)
        strike(stack, stage, attack, bystanders, company, outcome, seconds)
    return outcome


def watch(stage: Stage, tally: SynchronizedArray, outcome: Outcome, seconds: float) -> None:
    """Notes the most of what there is for so long."""
    end, tcp_before = time.monotonic() + seconds, tcp_memory_mib()
    while time.monotonic() < end:
        time.sleep(SAMPLE_SECONDS)
        outcome.memory_peak_mib = max(outcome.memory_peak_mib, stage.memory_mib())
        outcome.tcp_memory_mib = max(outcome.tcp_memory_mib, tcp_memory_mib() - tcp_before)
        outcome.connections = max(outcome.connections, tally[OPEN])


def strike(stack: ExitStack, stage: Stage, attack: Attack,
           bystanders: Callable[[float], Bystanders], company: list[Forked], outcome: Outcome,
           seconds: float) -> None:
    """The attack itself, and the minute after."""
    outcome.memory_before_mib = stage.memory_mib()
    tally = multiprocessing.get_context("fork").Array("q", TALLIES, lock=False)
    files = stack.enter_context(Asker(ColdFiles(stage.server.plain_port).ask))
    probes = stack.enter_context(Asker(lambda: attack.probe(stage))) if attack.probe else None
    used, beside = Usage.now(stage.server, *company), bystanders(seconds)
    time.sleep(LEAD_SECONDS)
    attacker = Forked(seconds, ATTACKER_NICE, lambda: attack.strike(
        Attacker(stage.server.port, seconds + SPARE_SECONDS, tally, attack.rate)))
    stack.callback(attacker.stop)
    watch(stage, tally, outcome, seconds)
    for process in (attacker, *company):
        process.expect_alive()
    outcome.files, outcome.probes = files.counts, probes.counts if probes else (0, 0)
    outcome.during = beside.finish()
    usage = Usage.now(stage.server, *company, attacker)
    for process in (attacker, *company):
        process.stop()
    kept = stage.status()["messages_kept"] if attack.kept_bytes_max else 0
    bound = math.inf if kept else outcome.memory_before_mib + MEMORY_SPARE_MIB + attack.stays_mib
    outcome.settled_seconds, outcome.memory_after_mib = settle(stage, bound)
    outcome.seconds = usage.wall - used.wall
    outcome.sent_per_second = tally[SENT] / outcome.seconds
    outcome.opened, outcome.cut, outcome.messages_kept = tally[OPENED], tally[CUT], kept
    outcome.server_cpu = (usage.server - used.server) / outcome.seconds
    outcome.foreign_share = foreign_share(used, usage)
    outcome.verdicts = judge(outcome, attack, tcp_pressure_mib() * TCP_PRESSURE_SHARE_MAX)


def settle(stage: Stage, bound_mib: float) -> tuple[float, float]:
    """Waits until the memory is back, for a minute at most; how long that took, and the memory."""
    began = time.monotonic()
    while True:
        time.sleep(1)
        elapsed, memory = time.monotonic() - began, stage.memory_mib()
        if elapsed >= SETTLED_SECONDS or memory <= bound_mib:
            return elapsed, memory


def tcp_memory_mib() -> float:
    """What the host's TCP sockets hold."""
    return host.tcp_sockets("mem") * PAGE_BYTES / MIB


def tcp_pressure_mib() -> float:
    """Where the kernel begins to save memory on all TCP sockets."""
    return int(Path("/proc/sys/net/ipv4/tcp_mem").read_text().split()[1]) * PAGE_BYTES / MIB


# ---- The table ----

COLUMNS = ("attack", "KB/s", "conns", "memory MiB", "CPU", "GET p50/p99 ms", "delivery p99 ms",
           "control p99", "no answer", "verdict")


def cells(outcome: Outcome) -> tuple[str, ...]:
    quiet, during = outcome.quiet, outcome.during
    memory = (f"{outcome.memory_before_mib:.0f} / {outcome.memory_peak_mib:.0f} / "
              f"{outcome.memory_after_mib:.0f}")
    if "kept" in outcome.verdicts:
        growth = (outcome.memory_peak_mib - outcome.memory_empty_mib) * MIB
        memory += f" ({growth / outcome.messages_kept / 1024:.1f} KiB a message)"
    verdict = f"MISSED: {', '.join(outcome.missed)}" if outcome.missed else "reached"
    return (
        outcome.attack, f"{outcome.sent_per_second / 1000:,.0f}", f"{outcome.connections:,}",
        memory, f"{outcome.server_cpu_quiet:.0%} -> {outcome.server_cpu:.0%}",
        f"{pair(quiet, 'get')} -> {pair(during, 'get')}",
        f"{quiet.p99('delivery'):.1f} -> {during.p99('delivery'):.1f}",
        f"{during.p99('control'):.1f}",
        " ".join(str(during.unanswered(what)) for what in ("get", "control", "newcomer")),
        verdict + (" (busy host)" if outcome.is_doubtful else ""),
    )


def pair(phase: Phase, what: str) -> str:
    return f"{phase.p50(what):.2f}/{phase.p99(what):.1f}"


def not_measured(name: str, reason: str) -> tuple[str, ...]:
    """Counts as missed: what nobody could measure has not been withstood."""
    return (name, *[""] * (len(COLUMNS) - 2), f"not measured: {reason}")
