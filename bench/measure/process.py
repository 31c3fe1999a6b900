"""A program: started on its cores, measured from outside, stopped by its own process id."""

import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from .bench import LOAD_CORE, OUT_DIR, SERVER_CORE, MeasurementError

# Settings of the caller are not those of a server that is measured.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("STENTOR_")}

# Every program ends with the driver, even if the driver is killed.
TIED = ("setpriv", "--pdeathsig", "TERM")

START_SECONDS_MAX = 15
STOP_SECONDS_MAX = 15
UPGRADE_SECONDS_MAX = 60
POLL_SECONDS = 0.005
LAST_LINES = 5
ALL_CORES = f"0-{(os.cpu_count() or 1) - 1}"


class Memory(NamedTuple):
    """What /proc says a process holds, in bytes."""

    resident: int
    proportional: int
    anonymous: int

    def growth_each(self, before: "Memory", count: int) -> "Memory":
        """The growth for each of so many connections."""
        return Memory(*((now - then) // count for now, then in zip(self, before)))


class Process(AbstractContextManager):
    """A program with its log. It may be started again; leaving the `with` block stops it."""

    def __init__(self, name: str, command: Iterable[object], cores: str = "",
                 environment: dict[str, str] | None = None, log: Path | None = None,
                 **more: object) -> None:
        """Without `cores` it runs on all that the driver may use; `more` is for Popen."""
        self.name = name
        self.command = list(map(str, command))
        self.prefix = [*TIED, *(("taskset", "--cpu-list", cores) if cores else ())]
        self.environment = environment or {}
        self.log = log or OUT_DIR / f"{name}.log"
        self.more = more

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.begin = log.tell()
            self.process = subprocess.Popen(
                [*self.prefix, *self.command], env={**CLEAN, **self.environment},
                **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **self.more})
        self.pid = self.process.pid
        _started[self.name] = self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, by SIGKILL if it takes too long. After an upgrade two processes end: the one
        that serves, and the first one, which waits for it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, how)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def is_running(self) -> bool:
        self.process.poll()
        return state(self.pid) != "Z"

    def last_words(self) -> str:
        text = self.log.read_bytes()[self.begin:].decode(errors="replace").strip()
        return "\n".join(text.splitlines()[-LAST_LINES:]) or "its log is empty"

    @staticmethod
    def last_words_of_all() -> str:
        """The ends of the logs of all that was started since the last call: for an error, whichever
        of them it is about."""
        processes = list(_started.values())
        _started.clear()
        return "\n".join(f"-- the log of {process.name} ends:\n{process.last_words()}"
                         for process in processes if process.log.exists())

    def log_end(self) -> int:
        return self.log.stat().st_size

    def logged(self, pattern: str, since: int | None = None) -> re.Match[str] | None:
        """The first place of the log, from its start or from an offset on, that matches."""
        text = self.log.read_bytes()[self.begin if since is None else since:]
        return re.search(pattern, text.decode(errors="replace"), re.MULTILINE)

    def wait_for(self, pattern: str, since: int | None = None,
                 seconds: float = START_SECONDS_MAX) -> re.Match[str]:
        """Waits until the log has it, for so long at most."""
        give_up = time.monotonic() + seconds
        while True:
            was_running = self.is_running() and time.monotonic() < give_up
            if found := self.logged(pattern, since):
                return found
            if not was_running:
                raise MeasurementError(f"{self.name} does not log {pattern!r} within {seconds:g} s;"
                                       f" its last lines are:\n{self.last_words()}")
            time.sleep(POLL_SECONDS)

    def upgrade(self, seconds: float = UPGRADE_SECONDS_MAX) -> int:
        """Has another process take over. Returns the pause in microseconds; a refusal ends the
        measurement with the server's own sentence."""
        since = self.log_end()
        os.kill(self.pid, signal.SIGUSR2)
        over = self.wait_for(r"not upgraded.*|process (\d+) has taken over", since, seconds)
        if not over[1]:
            raise MeasurementError(f"{self.name}: {over[0]}")
        self.pid = int(over[1])
        return int(self.wait_for(r"stood still for (\d+) us", since)[1])

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, living and ended, in seconds."""
        if not self.is_running():
            raise MeasurementError(f"{self.name} has ended: {self.last_words()}")
        return cpu_seconds_of(self.pid)

    def memory(self) -> Memory:
        bytes_of = memory_fields(f"/proc/{self.pid}/smaps_rollup")
        return Memory(bytes_of["Rss"], bytes_of["Pss"], bytes_of["Anonymous"])


class Instrument(Process):
    """A program in C on the core of the load, which answers each line with a line."""

    def __init__(self, name: str, command: Iterable[object], cores: str = str(LOAD_CORE)) -> None:
        super().__init__(name, command, cores, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True)
        self.start()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        super().stop(how)
        self.process.stdin.close()
        self.process.stdout.close()

    def order(self, order: str) -> str:
        """Returns the answer. That there is one in time is the program's own promise."""
        with suppress(BrokenPipeError):
            print(order, file=self.process.stdin, flush=True)
        if line := self.process.stdout.readline():
            return line
        raise MeasurementError(f"{self.name} have ended: {self.last_words()}")


class Server(Process):
    """A process that listens on ports, of which the first is the one to measure."""

    scheme = "http"
    """How its first port is asked."""

    def __init__(self, name: str, command: Iterable[object], *ports: int,
                 cores: str = str(SERVER_CORE), **more: object) -> None:
        super().__init__(name, command, cores, **more)
        self.ports = ports
        self.port = ports[0]
        self.start()

    def start(self) -> None:
        """Returns when all ports are listened on."""
        super().start()
        try:
            for port in self.ports:
                self.wait_until_it_listens(port)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def wait_until_it_listens(self, port: int) -> None:
        give_up = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up and self.is_running():
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise MeasurementError(f"{self.name} does not listen on port {port}: {self.last_words()}")


def state(process: int | str) -> str:
    """The letter of /proc/PID/stat; Z if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def memory_fields(path: str) -> dict[str, int]:
    """Reads the sizes of memory in a file of /proc, in bytes."""
    lines = re.findall(r"^(\w+): +(\d+) kB$", Path(path).read_text().replace("\t", " "), re.M)
    return {name: int(kilobytes) * 1024 for name, kilobytes in lines}


def cpu_seconds_of(pid: int) -> float:
    """Processor time of a process with all its threads, in nanosecond resolution.

    The clock id is what clock_getcpuclockid(3) returns for a pid. Unlike /proc/PID/schedstat it
    includes threads that have ended and the slice that is running at this moment.
    """
    return time.clock_gettime((~pid << 3) | 2)


def free_port() -> int:
    """A port nobody listens on at this moment, below the range clients get theirs from: so it stays
    free while whoever listens there is away. It is found by chance, for others look for one too."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(max(low - 20_000, 1024), low)
    for port in random.SystemRandom().sample(ports, len(ports)):
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise MeasurementError(f"no free port below {low}")


_handed_out: set[int] = set()
_started: dict[str, Process] = {}
