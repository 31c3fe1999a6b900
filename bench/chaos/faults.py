"""What goes wrong, by chance and for a while."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

from measure.client import Gone

from .world import FAKETIME, Node, Process, World

PAUSE_SECONDS, DURATION_SECONDS = 0.6, 1.2
AT_ONCE = 2
# By so many seconds a clock is wrong.
WRONG_BY = [2, 3_600, 86_400, 40 * 86_400]
# The time that a busy server tells is so old at most, in seconds.
INEXACT = 60
AnyProcess = TypeVar("AnyProcess", bound=Process)


class Faults:
    """Makes up to two things go wrong at once, on different processes."""

    def __init__(self, world: World, seed: int, loses: bool, only: list[str]) -> None:
        self.world, self.random = world, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.spoilt: Counter[str] = Counter()
        # Nodes whose disks were spoilt since all were well.
        self.spoilt_nodes: set[Node] = set()
        self.busy: set[Process] = set()
        self.saved = False
        self.kinds: list[tuple[str, Callable[[], AbstractAsyncContextManager[None]]]] = [
            ("node killed", partial(self.down, world.nodes)),
            ("node stopped", partial(self.stopped, world.nodes)),
            ("node ended", partial(self.down, world.nodes, signal.SIGTERM)),
            ("node cut off", self.node_cut_off),
            ("links deaf", self.links_deaf),
            ("links slow", self.links_slow), ("connections cut", self.connections_cut),
            ("broker killed", partial(self.down, world.brokers)),
            ("broker stopped", partial(self.stopped, world.brokers))]
        if all(broker.is_small for broker in world.brokers):
            self.kinds.append(("disk full", self.disk_full))
        if len(world.brokers) > 1:
            self.kinds.append(("broker cut off", self.broker_cut_off))
        # How far SEQs jump where messages were lost goes by the clock.
        if FAKETIME and not loses:
            self.kinds.append(("clock jumps", self.clock_jumps))
        if loses:
            self.kinds += [("broker forgot all", self.all_forgotten),
                           ("broker went back", self.gone_back)]
        names = {name for name, _ in self.kinds}
        if not names.issuperset(only):
            raise SystemExit(f"there are these faults: {', '.join(sorted(names))}")
        self.kinds = [(name, fault) for name, fault in self.kinds if name in only or not only]
        self.at_once = min(AT_ONCE, len(self.kinds))

    async def run(self, seconds: float) -> None:
        """For so long, and heals everything."""
        self.spoilt_nodes.clear()
        until = asyncio.get_running_loop().time() + seconds
        under_way: set[asyncio.Task[None]] = set()
        while asyncio.get_running_loop().time() < until:
            if len(under_way) < self.at_once:
                name, fault = self.random.choice(self.kinds)
                task = asyncio.create_task(self.one(name, fault))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(self.random.expovariate(1 / PAUSE_SECONDS))
        if under_way:
            await asyncio.wait(under_way)

    async def one(self, name: str,
                  fault: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        async with fault():
            self.done[name] += 1
            await asyncio.sleep(self.random.expovariate(1 / DURATION_SECONDS))

    @asynccontextmanager
    async def taken(self, processes: list[AnyProcess]) -> AsyncIterator[AnyProcess]:
        """One of them to which nothing happens yet."""
        free = [process for process in processes if process not in self.busy]
        while not free:
            await asyncio.sleep(0.05)
            free = [process for process in processes if process not in self.busy]
        process = self.random.choice(free)
        self.busy.add(process)
        try:
            yield process
        finally:
            self.busy.discard(process)

    @asynccontextmanager
    async def down(self, processes: list[AnyProcess],
                   how: signal.Signals = signal.SIGKILL) -> AsyncIterator[AnyProcess]:
        async with self.taken(processes) as process:
            await process.end(how)
            try:
                yield process
            finally:
                if isinstance(process, Node):
                    self.spoil(process)
                process.start()

    def spoil(self, node: Node) -> None:
        """One keeps its disk: what is older than the stream nobody else may have."""
        if len(self.spoilt_nodes | {node}) == len(self.world.nodes):
            return
        if spoilt := node.spoil(self.random):
            self.spoilt[spoilt] += 1
            self.spoilt_nodes.add(node)

    @asynccontextmanager
    async def clock_jumps(self) -> AsyncIterator[None]:
        """There, and back."""
        async with self.taken(self.world.nodes) as node:
            ahead = self.random.choice([-1, 1]) * self.random.choice(WRONG_BY)
            node.set_clock(ahead)
            try:
                with contextlib.suppress(Gone):
                    if abs(await node.ahead() - ahead) > INEXACT:
                        raise RuntimeError("its clock has not jumped")
                yield
            finally:
                node.set_clock(0)

    @asynccontextmanager
    async def stopped(self, processes: list[AnyProcess]) -> AsyncIterator[None]:
        async with self.taken(processes) as process:
            process.pause()
            # Longer than anybody waits, now and then.
            await asyncio.sleep(self.random.choice([0.1, 0.5, 2, 6]))
            try:
                yield
            finally:
                process.resume()

    @asynccontextmanager
    async def still(self, links: list) -> AsyncIterator[None]:
        for link in links:
            link.flows.clear()
        await asyncio.sleep(self.random.choice([0, 0, 3, 7]))
        try:
            yield
        finally:
            for link in links:
                link.heal()

    @asynccontextmanager
    async def node_cut_off(self) -> AsyncIterator[None]:
        """From all brokers, or from one of them."""
        links = self.world.of_node[self.random.choice(self.world.nodes).number]
        chosen = links if self.random.random() < 0.5 else [self.random.choice(links)]
        async with self.still(chosen):
            yield

    @asynccontextmanager
    async def broker_cut_off(self) -> AsyncIterator[None]:
        """From the others; nodes still reach it."""
        broker = self.random.choice(self.world.brokers)
        async with self.still(self.world.of_broker[broker.number]):
            yield

    @asynccontextmanager
    async def links_slow(self) -> AsyncIterator[None]:
        chosen = self.random.sample(self.world.links, k=min(3, len(self.world.links)))
        for link in chosen:
            link.delay = self.random.choice([0.002, 0.02, 0.2])
        try:
            yield
        finally:
            for link in chosen:
                link.delay = 0.0

    @asynccontextmanager
    async def links_deaf(self) -> AsyncIterator[None]:
        """Whoever loses its connection gets no other one, and is not told that."""
        count = self.random.randint(1, min(3, len(self.world.links)))
        chosen = [link for link in self.random.sample(self.world.links, k=count)
                  if not link.is_deaf]
        await asyncio.gather(*(link.turn_deaf() for link in chosen))
        for link in chosen:
            link.cut()
        await asyncio.sleep(self.random.choice([0, 0, 3, 7]))
        try:
            yield
        finally:
            for link in chosen:
                link.hear()

    @asynccontextmanager
    async def connections_cut(self) -> AsyncIterator[None]:
        self.random.choice(self.world.links).cut()
        yield

    @asynccontextmanager
    async def disk_full(self) -> AsyncIterator[None]:
        async with self.taken(self.world.brokers) as broker:
            await asyncio.to_thread(broker.fill)
            try:
                yield
            finally:
                broker.make_room()
                # One that could not write has switched JetStream off, for good.
                await broker.end()
                broker.start()

    @asynccontextmanager
    async def all_forgotten(self) -> AsyncIterator[None]:
        async with self.down(self.world.brokers) as broker:
            broker.forget(None)
            self.world.losses += 1
            self.saved = False
            yield

    @asynccontextmanager
    async def gone_back(self) -> AsyncIterator[None]:
        """The first time it is saved what the broker has, and the second time it is back there."""
        async with self.down(self.world.brokers) as broker:
            saved = self.world.directory / "saved"
            if self.saved:
                broker.forget(saved)
                self.world.losses += 1
            else:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(saved)
                shutil.copytree(broker.store / "jetstream", saved)
            self.saved = not self.saved
            yield
