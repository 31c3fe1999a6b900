"""Publishers and readers, who write down what they were told."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field

from measure.client import Answer, Gone, Silent, ask_soon, events

from .oracle import DELETED, Attempt, Id, Mark, Order, Outcome, Reader
from .world import Node, World

# Publishers contend for a few topics, of which the last come and go.
TOPICS, FLEETING = 12, 3
PAUSE_SECONDS, STAY_SECONDS = 0.06, 3.0
STUCK_SECONDS = 120
# Whoever publishes is told something within some seconds: this is a multiple, for a host that
# stands still.
ANSWER_SECONDS = 30
# What the server says where a change may yet come to be.
NOT_KNOWN = "outcome_unknown"
# The event name of all that is no message.
NOTICE = "stentor"


@dataclass
class Round:
    """What is published and read from a quiet moment to the next."""

    name: str
    world: World
    order: Order
    random: random.Random
    begin: Id | None = None
    number: int = 0
    attempts: dict[str, Attempt] = field(default_factory=dict)
    deletions: dict[str, list[int]] = field(default_factory=dict)
    # Topic -> the last change of all; a reader that has it is at the end.
    ends: dict[str, Id] = field(default_factory=dict)
    gaps: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    # Of what was published while things failed.
    acknowledged: int = 0
    # Counts what publishers begin, and what they are answered.
    clock: int = 0
    # Publishers are to come to an end.
    is_over: bool = False

    @property
    def nodes(self) -> list[Node]:
        return self.world.nodes

    @property
    def topics(self) -> list[str]:
        return [f"/{self.name}/{number}" for number in range(TOPICS)]

    @property
    def fleeting(self) -> list[str]:
        return self.topics[-FLEETING:]

    def attempt(self, topic: str, condition: Id | str | None = None) -> str:
        self.number += 1
        data = f"{self.name}.{self.number}"
        self.attempts[data] = Attempt(topic, condition, begun=self.tick(), losses=self.world.losses)
        return data

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    async def change(self, node: Node, method: str, topic: str,
                     fields: dict[str, str] | None = None,
                     body: bytes = b"") -> Answer:
        """Raises Gone. A node to which nothing happens is not silent, whatever its brokers are."""
        disturbances = node.disturbances if node.is_up else None
        try:
            return await ask_soon(node.control, method, topic, fields, body, ANSWER_SECONDS)
        except Silent as silence:
            if disturbances == node.disturbances:
                self.order.violations.append(f"{node.name}: {method} {topic} {body.decode()}: "
                                             f"{silence}")
            raise

    async def publish(self, node: Node, topic: str, condition: Id | str | None = None) -> Id | None:
        """Tries to, once. Returns the id if it was taken."""
        data = self.attempt(topic, condition)
        attempt, generation = self.attempts[data], node.generation
        fields = {"Content-Type": "text/plain"}
        if condition == "*":
            fields["If-None-Match"] = "*"
        elif condition:
            fields["If-Match"] = f'"{condition}"'
        try:
            answer = await self.change(node, "PUT", topic, fields, data.encode())
        except Gone:
            return None
        attempt.answered, attempt.is_mismatch = self.tick(), answer.status == 412
        if answer.status in (200, 201):
            attempt.outcome, attempt.id = Outcome.TAKEN, Id.of(answer.fields["etag"])
            self.order.answered(attempt.id, topic, data, f"the publisher at {node.name}")
            await self.read_back(node, generation, topic, attempt.id)
            return attempt.id
        if answer.fields.get("stentor-error") != NOT_KNOWN:
            attempt.outcome = Outcome.REFUSED
        if answer.status not in (412, 503):
            self.order.violations.append(f"{node.name}: PUT {topic} was {answer}")
        return None

    async def read_back(self, node: Node, generation: int, topic: str, id: Id) -> None:
        """Whoever was answered sees it at that node, or what came since."""
        try:
            answer = await ask_soon(node.port, "GET", topic)
        except Gone:
            return
        self.reads += 1
        is_same = node.generation == generation and answer.status in (200, 404)
        if is_same and answer.status == 404 and topic not in self.fleeting:
            self.order.violations.append(f"{node.name}: {id} of {topic} was taken, and is gone")
        if is_same and answer.status == 200:
            seen = Id.of(answer.fields["etag"])
            if seen.epoch == id.epoch and seen < id:
                self.order.violations.append(f"{node.name}: {id} of {topic} was taken, and behind "
                                             f"that it has {seen}")

    async def delete(self, node: Node, topic: str) -> None:
        count = self.deletions.setdefault(topic, [0, 0])
        # Nobody may be there any more when it is answered.
        count[1] += 1
        try:
            answer = await self.change(node, "DELETE", topic)
        except Gone:
            return
        count[0] += answer.status == 200
        count[1] -= answer.fields.get("stentor-error") != NOT_KNOWN


async def publisher(round: Round) -> None:
    """Publishes until the round is over, at any node."""
    dice = random.Random(round.random.random())
    while not round.is_over:
        await asyncio.sleep(dice.expovariate(1 / PAUSE_SECONDS))
        node, topic, what = dice.choice(round.nodes), dice.choice(round.topics), dice.random()
        if topic in round.fleeting and what < 0.4:
            if what < 0.2:
                await round.delete(node, topic)
            else:
                await round.publish(node, topic, "*")
        elif what < 0.6:
            await round.publish(node, topic)
        else:
            await replace(round, node, dice.choice(round.nodes), dice.choice(round.topics[:3]))


async def replace(round: Round, node: Node, other: Node, topic: str) -> None:
    """Reads a value at one node, and replaces it at another."""
    try:
        seen = await ask_soon(node.port, "GET", topic)
    except Gone:
        return
    if seen.status == 200:
        await round.publish(other, topic, Id.of(seen.fields["etag"]))


async def publish_surely(round: Round, topic: str) -> Id:
    """Once all is well: it may take a while."""
    give_up = asyncio.get_running_loop().time() + STUCK_SECONDS
    while asyncio.get_running_loop().time() < give_up:
        id = await round.publish(round.random.choice(round.nodes), topic)
        if id:
            return id
        await asyncio.sleep(0.2)
    raise TimeoutError(f"nothing is published at {topic}")


async def poll(round: Round, node: Node, since: Id, wait: int) -> tuple[list[dict], Id]:
    """What is new of all topics, and the cursor behind it."""
    path = f"/-/events?topic=/{round.name}/**&mode=all&wait={wait}&since={since}"
    answer = await ask_soon(node.port, "GET", path, patience=wait + 10)
    if answer.status != 200:
        raise Gone(f"status {answer.status}")
    told = json.loads(answer.body)
    return told["events"], Id.of(told["cursor"])


def change_of(envelope: dict) -> tuple[Id, str, str | None]:
    data = DELETED if envelope.get("deleted") else envelope["data"]
    return Id.of(envelope["id"]), envelope["topic"], data


class Wanderer:
    """A reader that goes from node to node with its cursor, and stays for a moment at each."""

    def __init__(self, round: Round, number: int) -> None:
        self.round, self.random = round, random.Random(round.random.random())
        topic = None if number % 3 == 0 else self.random.choice(round.topics)
        self.seen = Reader(topic, f"reader {number} of {topic or 'all'}")
        self.polls = topic is None and number % 2 == 0
        self.cursor, self.node = round.begin, round.nodes[0]
        self.seen.marks.append(Mark(round.begin, False))

    async def wander(self) -> None:
        """Until it has the last change of its topics."""
        while not self.is_at_end():
            self.node = self.random.choice(self.round.nodes)
            generation = self.node.generation
            stay = self.random.expovariate(1 / STAY_SECONDS)
            self.seen.connect()
            try:
                async with asyncio.timeout(stay):
                    await (self.poll() if self.polls else self.read())
                    if self.is_at_end():
                        return
                    await self.look_into_end(generation)
            except (Gone, TimeoutError):
                await asyncio.sleep(0.05)

    async def look_into_end(self, generation: int) -> None:
        """A stream has ended: somebody must have ended the node."""
        if self.node.generation == generation and self.node.is_up:
            # Whoever ends it says so first, and it may have died by itself.
            await asyncio.sleep(0.2)
            if self.node.generation == generation and self.node.is_up:
                self.round.order.violations.append(
                    f"{self.seen.name}: the stream at {self.node.name} ended behind {self.cursor}")

    def is_at_end(self) -> bool:
        ends = self.round.ends
        if len(ends) < TOPICS:
            return False
        end = ends[self.seen.topic] if self.seen.topic else max(ends.values())
        return self.cursor.epoch == end.epoch and self.cursor >= end

    async def read(self) -> None:
        topic = self.seen.topic
        path = topic or f"/-/events?topic=/{self.round.name}/**"
        async for event in events(self.node.port, path, {"Last-Event-ID": str(self.cursor)}):
            is_notice, data = event.get("event") == NOTICE, event.get("data")
            if data is None:
                continue
            told = json.loads(data) if is_notice or not topic else {
                "id": event["id"], "topic": topic, "data": data}
            if "gap" in told:
                self.count(told["gap"]["reason"])
            elif "cursor" in told:
                self.reach(Id.of(told["cursor"]), False)
            elif "topic" in told:
                self.take(*change_of(told))
            if self.is_at_end():
                return

    async def poll(self) -> None:
        while not self.is_at_end():
            self.seen.connect()
            envelopes, reached = await poll(self.round, self.node, self.cursor, 10)
            for envelope in envelopes:
                if "gap" in envelope:
                    self.count(envelope["gap"]["reason"])
                else:
                    self.take(*change_of(envelope))
            self.reach(reached, False)

    def count(self, reason: str) -> None:
        self.round.gaps[reason] += 1
        self.seen.tell(reason, self.round.clock)

    def take(self, id: Id, topic: str, data: str | None) -> None:
        self.round.order.saw(id, topic, data, f"{self.seen.name} at {self.node.name}")
        attempt = self.round.attempts.get(data) if data is not DELETED else None
        self.reach(id, True, attempt.begun if attempt else 0)

    def reach(self, id: Id, is_sent: bool, begun: int = 0) -> None:
        self.seen.reach(id, is_sent, begun)
        self.cursor = id
