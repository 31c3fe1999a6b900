"""A process: started on its core, measured from outside, stopped by its own pid."""

import os
import random
import re
import socket
import subprocess
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from .bench import LOAD_CORE, OUT_DIR, SERVER_CORE, MeasurementError

# Whatever is started ends with the driver, even if that is killed.
TIED = ("setpriv", "--pdeathsig", "TERM")

START_SECONDS_MAX = 15
STOP_SECONDS_MAX = 15


class Memory(NamedTuple):
    """What /proc says a process holds, in bytes."""

    resident: int
    proportional: int
    anonymous: int

    def growth_each(self, before: "Memory", count: int) -> "Memory":
        """The growth for each of so many connections."""
        return Memory(*((now - then) // count for now, then in zip(self, before)))


class Process(AbstractContextManager["Process"]):
    """Runs while the `with` block does; leaving the block for any reason stops it."""

    def __init__(self, name: str, command: list[str], cores: str, is_driven: bool = False,
                 environment: dict[str, str] | None = None) -> None:
        """One that `is_driven` has pipes for lines of text; any other has its log."""
        self.name = name
        self.log = OUT_DIR / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*TIED, "taskset", "--cpu-list", cores, *command],
                stdin=subprocess.PIPE if is_driven else subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_driven else log, stderr=log, text=is_driven,
                env={**os.environ, **(environment or {})},
            )

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, living and ended, in seconds."""
        if self.process.poll() is not None:
            raise MeasurementError(f"{self.name} has ended: {self.last_words()}")
        return cpu_seconds_of(self.process.pid)


class Instrument(Process):
    """A program in C on the core of the load, which answers each line with a line."""

    def __init__(self, name: str, command: list[str], cores: str = str(LOAD_CORE)) -> None:
        super().__init__(name, command, cores, is_driven=True)

    def stop(self) -> None:
        super().stop()
        self.process.stdin.close()
        self.process.stdout.close()

    def order(self, order: str) -> str:
        """Returns the answer. That there is one is the program's own promise."""
        with suppress(BrokenPipeError):
            print(order, file=self.process.stdin, flush=True)
        if line := self.process.stdout.readline():
            return line
        raise MeasurementError(f"{self.name} have ended: {self.last_words()}")


class Server(Process):
    """A process that listens on ports, of which the first is the one to measure."""

    scheme = "http"
    """How its first port is asked."""

    def __init__(self, name: str, command: list[str], *ports: int,
                 environment: dict[str, str] | None = None,
                 cores: str = str(SERVER_CORE)) -> None:
        """Returns when all `ports` are listened on."""
        super().__init__(name, command, cores, environment=environment)
        self.port = ports[0]
        try:
            for port in ports:
                self.wait_until_it_listens(port)
        except BaseException:
            self.stop()
            raise

    def wait_until_it_listens(self, port: int) -> None:
        give_up = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise MeasurementError(
            f"{self.name} does not listen on port {port}: {self.last_words()}")

    def memory(self) -> Memory:
        bytes_of = memory_fields(f"/proc/{self.process.pid}/smaps_rollup")
        return Memory(bytes_of["Rss"], bytes_of["Pss"], bytes_of["Anonymous"])


def memory_fields(path: str) -> dict[str, int]:
    """Reads the sizes of memory in a file of /proc, in bytes."""
    lines = re.findall(r"^(\w+): +(\d+) kB$", Path(path).read_text().replace("\t", " "), re.M)
    return {name: int(kilobytes) * 1024 for name, kilobytes in lines}


def all_cores() -> str:
    """Those that this process may use, for `taskset`."""
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


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
