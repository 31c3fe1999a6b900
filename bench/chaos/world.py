"""Brokers, nodes, and the links between them, all of which can be made to fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

from measure import process
from measure.client import Gone, ask_soon
from measure.process import free_port

from .oracle import Id

# Where the store of a broker is, if its disk is to be full now and then.
DISK_BYTES = 192 << 20
READY_SECONDS_MAX = 120
# Of a node with a disk.
SAVE_EVERY = "1s"
# Of links; so many connections fit into the backlog of one that is deaf, at most.
LISTEN_BACKLOG, CALLS_MAX, UNHEARD_SECONDS = 64, 8, 0.3
# What shows a process another time, where Debian has it.
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


class Link:
    """A relay in front of a port: it can be slow, stand still, or break. What was on its way while
    it stood still arrives later, as with a network."""

    def __init__(self, target: int) -> None:
        self.target, self.port, self.delay = target, 0, 0.0
        self.socket = socket.socket()
        self.calls: list[socket.socket] = []
        self.is_deaf = False
        self.flows = asyncio.Event()
        self.flows.set()
        self.writers: set[asyncio.StreamWriter] = set()
        self.pumps: set[asyncio.Task[None]] = set()

    async def start(self) -> Link:
        self.socket.setblocking(False)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.hear()
        return self

    def hear(self) -> None:
        self.is_deaf = False
        for call in self.calls:
            call.close()
        self.calls.clear()
        self.socket.listen(LISTEN_BACKLOG)
        self.hears = asyncio.create_task(self.listen())

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            accepted, _ = await loop.sock_accept(self.socket)
            reader, writer = await asyncio.open_connection(sock=accepted)
            relay = asyncio.create_task(self.relay(reader, writer))
            self.pumps.add(relay)
            relay.add_done_callback(self.pumps.discard)

    async def turn_deaf(self) -> None:
        """New connections are neither taken nor refused: nobody takes them, and there is no room
        for more, so that the kernel drops whatever asks for one."""
        self.is_deaf = True
        self.hears.cancel()
        await asyncio.wait([self.hears])
        self.socket.listen(0)
        for _ in range(CALLS_MAX):
            call = socket.socket()
            call.setblocking(False)
            self.calls.append(call)
            try:
                async with asyncio.timeout(UNHEARD_SECONDS):
                    await asyncio.get_running_loop().sock_connect(call, ("127.0.0.1", self.port))
            except TimeoutError:
                return
        raise RuntimeError("a full backlog takes connections")

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, outer), (inner, writer)):
            self.writers.add(sink)
            pump = asyncio.create_task(self.pump(source, sink))
            self.pumps.add(pump)
            pump.add_done_callback(self.pumps.discard)

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self.flows.wait()
                sink.write(data)
                await sink.drain()
        await self.flows.wait()
        self.writers.discard(sink)
        sink.transport.abort()

    def cut(self) -> None:
        """Breaks all connections; new ones may be made."""
        for writer in list(self.writers):
            writer.transport.abort()

    def heal(self) -> None:
        self.delay = 0.0
        self.flows.set()


class Process(process.Process):
    """A program that is killed, stopped and started again."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        super().__init__(name, command, log=log)
        self.generation, self.is_stopped, self.is_ending = 0, False, False
        self.disturbances = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.generation, self.is_ending = self.generation + 1, False
        super().start()

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None and not self.is_stopped and not self.is_ending

    async def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.is_ending, self.disturbances = True, self.disturbances + 1
        self.resume()
        await asyncio.to_thread(self.stop, how)

    def pause(self) -> None:
        self.is_stopped, self.disturbances = True, self.disturbances + 1
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_stopped:
            self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False


class Broker(Process):
    """A server of NATS."""

    def __init__(self, directory: Path, number: int, program: str, may_mount: bool) -> None:
        self.directory, self.store = directory, directory / f"store{number}"
        self.number, self.port, self.route_port = number, free_port(), free_port()
        self.config = directory / f"broker{number}.conf"
        super().__init__(f"broker {number}", [program, "-c", str(self.config)],
                         directory / f"broker{number}.log")
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        major, minor = version.stdout.rsplit("v", 1)[1].split(".")[:2]
        # Versions before 2.10 do not know the setting.
        self.syncs = (int(major), int(minor)) >= (2, 10)
        self.store.mkdir()
        self.is_small = may_mount and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "stentor-chaos", self.store],
            stderr=subprocess.DEVNULL).returncode

    def configure(self, advertised: int, routes: list[int]) -> None:
        sync = ", sync_interval: always" if self.syncs else ""
        text = (f"server_name: b{self.number}\nlisten: 127.0.0.1:{self.port}\n"
                f"jetstream {{ store_dir: {self.store}, max_file: 1G{sync} }}\n")
        if routes:
            urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            text += (f"cluster {{ name: chaos, listen: 127.0.0.1:{self.route_port}, "
                     f"advertise: 127.0.0.1:{advertised}, no_advertise: true, "
                     f"routes: [{urls}] }}\n")
        self.config.write_text(text)

    def fill(self) -> None:
        """Leaves no room on its disk."""
        with contextlib.suppress(OSError), (self.store / "full").open("wb", 0) as file:
            while True:
                file.write(bytes(1 << 16))

    def make_room(self) -> None:
        (self.store / "full").unlink(missing_ok=True)

    def failures_to_store(self) -> int:
        """So often it has said that it does not have what it took, after its disk was full. Then it
        may lead the others with what they have not."""
        said = self.log.read_bytes()
        return sum(said.count(failure) for failure in (
            b"JetStream failed to store a msg on stream",  # 2.9
            b"Error storing entry to WAL", b"Critical write error"))  # 2.12

    def forget(self, saved: Path | None) -> None:
        """Loses what it has, or what is not saved."""
        shutil.rmtree(self.store / "jetstream", ignore_errors=True)
        if saved:
            shutil.copytree(saved, self.store / "jetstream")


class Node(Process):
    """A server of the cluster."""

    def __init__(self, directory: Path, number: int, binary: Path) -> None:
        self.number, self.port, self.control = number, free_port(), free_port()
        self.config, self.data = directory / f"node{number}.toml", directory / f"data{number}"
        command = [str(binary), "serve", "-c", str(self.config)]
        super().__init__(f"node {number}", command, directory / f"node{number}.log")
        self.clock = directory / f"clock{number}"
        if FAKETIME:
            self.set_clock(0)
            self.environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                             "FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_NO_CACHE": "1"}

    def set_clock(self, ahead: int) -> None:
        """Its clock of the wall is so many seconds ahead of that of others."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"{ahead:+d}\n")
        new.rename(self.clock)

    async def ahead(self) -> float:
        """How much its clock is ahead, as it says itself: once a second it looks."""
        await asyncio.sleep(1.1)
        answer = await ask_soon(self.control, "GET", "/-/healthz", patience=5)
        return parsedate_to_datetime(answer.fields["date"]).timestamp() - time.time()

    def configure(self, brokers: list[Link], others: list[Node], replicas: int, keep: str,
                  has_data: bool) -> None:
        nats = [f"nats://127.0.0.1:{link.port}" for link in brokers]
        peers = [f"http://127.0.0.1:{other.control}" for other in others]
        self.has_data, save = has_data, ""
        if has_data:
            self.command += ["--data", str(self.data)]
            save = f"save_every = '{SAVE_EVERY}'\n"
        self.config.write_text(
            f"listen = '127.0.0.1:{self.port}'\ncontrol = '127.0.0.1:{self.control}'\n"
            f"workers = 1\ndrain = '1s'\n[[topics]]\nmatch = '/**'\nhistory = 1000000\n"
            f"history_bytes = '1 GiB'\n[streams]\nretry = '100ms'\n"
            f"[cluster]\nnats = {nats}\npeers = {peers}\nreplicas = {replicas}\n"
            f"keep = '{keep}'\nkeep_bytes = '64 MiB'\n{save}")

    def spoil(self, dice: random.Random) -> str | None:
        """While it is down: what it has saved is lost, or damaged, now and then."""
        what = dice.random()
        if not self.has_data or what < 0.5 or not self.data.exists():
            return None
        if what < 0.7:
            shutil.rmtree(self.data)
            return "data removed"
        files = sorted(path for path in self.data.rglob("*")
                       if path.is_file() and path.stat().st_size)
        if not files:
            return None
        file = dice.choice(files)
        damaged = bytearray(file.read_bytes())
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        file.write_bytes(damaged)
        return f"data damaged: {file.name}"

    async def status(self) -> dict:
        answer = await ask_soon(self.control, "GET", "/-/status", patience=5)
        if answer.status != 200:
            raise Gone(f"status {answer.status}")
        return json.loads(answer.body)["cluster"]


class World:
    """All of it."""

    def __init__(self, directory: Path, binary: Path, program: str, brokers: int,
                 may_mount: bool, nodes: int = 3) -> None:
        self.brokers = [Broker(directory, number, program, may_mount) for number in range(brokers)]
        # So often has a broker lost something.
        self.losses = 0
        self.nodes = [Node(directory, number, binary) for number in range(nodes)]
        self.directory = directory
        self.links: list[Link] = []
        self.of_node: dict[int, list[Link]] = {}
        self.of_broker: dict[int, list[Link]] = {number: [] for number in range(brokers)}

    async def start(self, keep: str, has_data: bool) -> None:
        await self.connect_brokers()
        for broker in self.brokers:
            broker.start()
        for node in self.nodes:
            links = [await self.link(broker.port) for broker in self.brokers]
            at = node.number % len(links)
            self.of_node[node.number] = links
            others = [other for other in self.nodes if other is not node]
            node.configure(links[at:] + links[:at], others, len(self.brokers), keep, has_data)
            node.start()
        await self.until("all nodes are ready", self.is_level)

    async def connect_brokers(self) -> None:
        """Each broker reaches each other one by links of its own; whoever learns of one by hearsay
        takes the link that it advertises."""
        if len(self.brokers) == 1:
            return self.brokers[0].configure(0, [])
        for broker in self.brokers:
            advertised = await self.link(broker.route_port)
            self.of_broker[broker.number].append(advertised)
            routes = []
            for other in self.brokers:
                if other is not broker:
                    link = await self.link(other.route_port)
                    self.of_broker[broker.number].append(link)
                    self.of_broker[other.number].append(link)
                    routes.append(link.port)
            broker.configure(advertised.port, routes)

    async def link(self, target: int) -> Link:
        link = await Link(target).start()
        self.links.append(link)
        return link

    async def is_level(self) -> bool:
        """All nodes are at the same place, and none lacks anything."""
        found = [await node.status() for node in self.nodes]
        places = {one["position"] for one in found}
        return all(one["open"] and not one["behind"] and not one["waiting_bytes"]
                   for one in found) and len(places) == 1

    def failures_to_store(self) -> int:
        return sum(broker.failures_to_store() for broker in self.brokers)

    async def epoch(self) -> str:
        """Of the life that all nodes are in."""
        return Id.of((await self.nodes[0].status())["position"]).epoch

    def fallen(self) -> list[str]:
        """Who has ended though nobody ended it, or lacks a thread."""
        ended = [f"{process.name} has ended by itself: {process.process.poll()}"
                 for process in [*self.nodes, *self.brokers] if process.process.poll() is not None]
        return ended + [f"{node.name} has panicked" for node in self.nodes
                        if b"panicked at" in node.log.read_bytes()]

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        give_up = asyncio.get_running_loop().time() + READY_SECONDS_MAX
        while True:
            with contextlib.suppress(Gone):
                if await holds():
                    return
            if asyncio.get_running_loop().time() > give_up:
                raise TimeoutError(f"not within {READY_SECONDS_MAX} s: {what}")
            await asyncio.sleep(0.1)

    def close(self) -> None:
        for process in [*self.nodes, *self.brokers]:
            if process.process:
                process.resume()
                process.stop(signal.SIGKILL)
        for broker in self.brokers:
            if broker.is_small:
                subprocess.run(["umount", "--lazy", broker.store], check=False)
