"""What a measurement stands on: packages present, programs built, cores assigned."""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BENCH_DIR = Path(__file__).resolve().parent.parent
OUT_DIR = BENCH_DIR / "out"
LUA_DIR = BENCH_DIR / "lua"
SERVER_CORE = 0
LOAD_CORE = 1

# Tool -> the Debian package that brings it.
PACKAGES = {"wrk": "wrk", "nginx": "nginx", "cc": "gcc", "taskset": "util-linux",
            "setpriv": "util-linux", "prlimit": "util-linux", "setsid": "util-linux"}


class MeasurementError(Exception):
    """A measurement cannot be made, or what was measured is not what was meant."""


@dataclass(frozen=True)
class Options:
    rounds: int
    seconds: int
    stentor: Path | None
    stall_seconds: int = 0
    """How long readers are stalled: `stalled` is not made of rounds."""


@dataclass(frozen=True)
class Bench:
    """The options of one run of the driver, and the programs: those in C are built when used."""

    options: Options
    stentor: Path

    @staticmethod
    def prepare(options: Options, tools: Iterable[str]) -> "Bench":
        """Makes sure of the tools and of Stentor itself."""
        require_tools(tools)
        stentor = find_stentor(options.stentor)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return Bench(options, stentor)

    @staticmethod
    def take_core() -> None:
        """Moves this process, and with it all load, to its core; servers are put on theirs."""
        if (os.cpu_count() or 1) < 2:
            raise MeasurementError("two cores are needed: one for the server, one for the load")
        os.sched_setaffinity(0, {LOAD_CORE})

    def program(self, name: str) -> Path:
        """The program made of `name`.c."""
        return compile_c(f"{name}.c", OUT_DIR / name)

    def describe_host(self) -> str:
        """One line that says where and how, with a warning when the host is not at rest."""
        busy = os.getloadavg()[0]
        text = (f"Linux {platform.release()}, {os.cpu_count()} cores, server on core "
                f"{SERVER_CORE}, load on core {LOAD_CORE}, {self.options.rounds} rounds of "
                f"{self.options.seconds} s, load average {busy:.2f}")
        return text + ("\nwarning: the host is busy, figures will scatter" if busy > 0.7 else "")


# Only some measurements need these, and ask for them then.
MORE_PACKAGES = {"nats-server": "nats-server", "openssl": "openssl"}


def require_tools(tools: Iterable[str]) -> None:
    """Installs the missing packages when allowed to, else says which they are."""
    environment_path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    os.environ["PATH"] = environment_path  # nginx lives in sbin, which users often lack
    packages = {**PACKAGES, **MORE_PACKAGES}
    missing = sorted({packages[tool] for tool in tools if not shutil.which(tool)})
    if missing:
        install(*missing)


def install(*packages: str) -> None:
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise MeasurementError(f"Debian packages are missing: {' '.join(packages)}")
    print("installing:", " ".join(packages), file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@cache
def compile_c(source: str, target: Path, *flags: str) -> Path:
    """Compiles a source of `bench/`, or one named by its path. It may include `common.h`."""
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", f"-I{BENCH_DIR}", *flags, "-o", target,
                    BENCH_DIR / source], check=True)
    return target


def find_stentor(given: Path | None) -> Path:
    """Returns the binary to measure, and makes the directory for logs."""
    OUT_DIR.mkdir(exist_ok=True)
    stentor = given.resolve() if given else build_stentor()
    if not os.access(stentor, os.X_OK):
        raise MeasurementError(f"{stentor} is not an executable file")
    return stentor


def build_stentor(*options: str) -> Path:
    """Builds the binary as it is shipped and returns the path that cargo itself reports."""
    if not shutil.which("cargo"):
        raise MeasurementError("cargo is missing: install Rust, or name a binary with --stentor")
    command = ["cargo", "build", "--release", "--quiet", "--package", "stentor",
               "--message-format", "json-render-diagnostics", *options]
    built = subprocess.run(command, cwd=BENCH_DIR.parent, check=True, stdout=subprocess.PIPE)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "stentor":
            return Path(message["executable"])
    raise MeasurementError("cargo built no binary named stentor")
