"""What must hold of a cluster, whatever has failed: no process, no socket, no clock.

Everything that anybody was sent makes the *order*: which id is which change. It is compared with
what publishers were answered, with what each reader was sent from cursor to cursor, and with what
nodes have in the end.

What a broker loses makes another life of the order (another EPOCH). With `may_lose`, the last life
alone is held to all of it: of the others it is only checked that readers were told.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

DELETED = None


class Id(NamedTuple):
    """The id of a change."""

    epoch: str
    seq: int

    @classmethod
    def of(cls, text: str) -> Id:
        epoch, _, seq = text.strip().strip('"').partition("-")
        return cls(epoch, int(seq.split("-")[0]))

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"


class Outcome(Enum):
    """What a publisher was answered."""

    TAKEN = "taken"
    REFUSED = "refused"  # It is not in the order.
    UNKNOWN = "unknown"  # It may be, or may come to be.


@dataclass
class Attempt:
    """A message that somebody tried to publish; its data is given to no other one."""

    topic: str
    condition: Id | str | None = None  # "*": if there is none yet.
    outcome: Outcome = Outcome.UNKNOWN
    id: Id | None = None


class Mark(NamedTuple):
    """How far a reader is: it has all up to here."""

    id: Id
    is_sent: bool = True  # This change itself was sent, not its number alone.
    is_told: bool = False  # Between the mark before and this one there is a gap, which it was told.


@dataclass
class Reader:
    """Everything that a reader was sent, over all its connections."""

    topic: str | None  # None: all of them.
    name: str = ""
    marks: list[Mark] = field(default_factory=list)


class Order:
    """Which id is which change."""

    def __init__(self, may_lose: bool = False) -> None:
        self.may_lose = may_lose
        self.changes: dict[Id, tuple[str, str | None]] = {}
        self.violations: list[str] = []
        self.last_epoch = ""
        self.places: dict[tuple[str, str | None], list[int]] = {}
        self.steps = 0
        self.told = 0

    def saw(self, id: Id, topic: str, data: str | None, who: str = "somebody") -> None:
        """Somebody was sent a change."""
        known = self.changes.setdefault(id, (topic, data))
        if known != (topic, data):
            self.conflict(id, known, (topic, data), who)

    def conflict(self, id: Id, one: object, other: object, who: str) -> None:
        # Between a loss and the moment it is found a number may be given twice.
        if not self.may_lose:
            self.violations.append(f"{id} is {one}, and for {who} {other}")

    def judge(self, last: Id, attempts: dict[str, Attempt], deletions: dict[str, tuple[int, int]],
              readers: Iterable[Reader]) -> list[str]:
        """All of it. `last` is a change behind all others; `deletions` are those that were
        acknowledged of each topic, and those of which nobody knows."""
        self.last_epoch = last.epoch
        by_topic: dict[str, list[Id]] = defaultdict(list)
        for id in sorted(self.changes):
            by_topic[self.changes[id][0]].append(id)
        places: dict[tuple[str, str | None], list[int]] = defaultdict(list)
        for id, (topic, _) in sorted(self.changes.items()):
            places[id.epoch, topic].append(id.seq)
            places[id.epoch, None].append(id.seq)
        self.places = places
        epochs = {id.epoch for id in self.changes}
        if len(epochs) > 1 and not self.may_lose:
            self.violations.append(f"nothing was lost, and there are the lives {sorted(epochs)}")
        self.judge_attempts(attempts)
        self.judge_conditions(attempts, by_topic)
        self.judge_deletions(deletions, by_topic)
        for reader in readers:
            self.judge_reader(reader)
        return self.violations

    def is_held(self, id: Id) -> bool:
        return not self.may_lose or id.epoch == self.last_epoch

    def judge_attempts(self, attempts: dict[str, Attempt]) -> None:
        """What was acknowledged is there, under its id; what was refused is not; nothing twice."""
        found: dict[str, list[Id]] = defaultdict(list)
        for id, (topic, data) in self.changes.items():
            if data is None:
                continue
            found[data].append(id)
            attempt = attempts.get(data)
            if attempt is None or attempt.topic != topic:
                self.violations.append(f"nobody has published {id}, {data!r} of {topic}")
        for data, attempt in attempts.items():
            there = found.get(data, [])
            lives = [id.epoch for id in there]
            if len(set(lives)) < len(lives):
                self.violations.append(f"{data!r} is there twice: {', '.join(map(str, there))}")
            if attempt.outcome is Outcome.REFUSED and there:
                self.violations.append(f"{data!r} was refused, and is {there[0]}")
            if attempt.outcome is Outcome.TAKEN and attempt.id not in there \
                    and self.is_held(attempt.id):
                self.violations.append(f"{data!r} was acknowledged as {attempt.id} of "
                                       f"{attempt.topic}, and is {there or 'not there'}")

    def judge_conditions(self, attempts: dict[str, Attempt],
                         by_topic: dict[str, list[Id]]) -> None:
        """Where a change is that named a value, that was the value."""
        for topic, ids in by_topic.items():
            before = None
            for id in ids:
                data = self.changes[id][1]
                attempt = attempts.get(data) if data is not None else None
                condition = attempt.condition if attempt else None
                is_new = before is None or before.epoch != id.epoch
                was_there = before if not is_new and self.changes[before][1] is not None else None
                # In another life it is a value that goes on.
                if condition and self.is_held(id) and not (is_new and self.may_lose):
                    wanted = None if condition == "*" else condition
                    if was_there != wanted:
                        self.violations.append(f"{id} of {topic} was to follow {condition}, and "
                                               f"follows {before}")
                before = id

    def judge_deletions(self, deletions: dict[str, tuple[int, int]],
                        by_topic: dict[str, list[Id]]) -> None:
        for topic, (taken, unknown) in deletions.items():
            there = sum(self.changes[id][1] is None for id in by_topic[topic])
            if not self.may_lose and not taken <= there <= taken + unknown:
                self.violations.append(f"{topic} was deleted {taken} times, and perhaps {unknown} "
                                       f"more: there are {there} deletions")

    def judge_reader(self, reader: Reader) -> None:
        """Between two marks nothing is left out, or the reader was told."""
        before = None
        for mark in reader.marks:
            if before is None or mark.is_told:
                self.told += mark.is_told
            elif mark.id.epoch != before.epoch:
                self.violations.append(f"{reader.name}: {mark.id} behind {before}, and no gap")
            elif self.is_held(mark.id):
                self.steps += 1
                self.judge_step(reader, before, mark)
            before = mark.id

    def judge_step(self, reader: Reader, before: Id, mark: Mark) -> None:
        if mark.id.seq < before.seq + mark.is_sent:
            self.violations.append(f"{reader.name}: {mark.id} comes behind {before}")
            return
        places = self.places.get((mark.id.epoch, reader.topic), [])
        begin = bisect_right(places, before.seq)
        end = (bisect_left if mark.is_sent else bisect_right)(places, mark.id.seq)
        if begin < end:
            self.violations.append(f"{reader.name}: {end - begin} missing between {before} and "
                                   f"{mark.id}, from {mark.id.epoch}-{places[begin]} on")

    def judge_node(self, name: str, values: dict[str, tuple[Id, str]],
                   history: list[tuple[Id, str, str | None]], kept: set[str]) -> list[str]:
        """What a node has in the end, when all have the same: values, and, of the topics that
        nobody has deleted, all that was published in this life."""
        wrong = []
        newest: dict[str, Id] = {}
        for id in sorted(id for id in self.changes if id.epoch == self.last_epoch):
            newest[self.changes[id][0]] = id
        expected = {topic: (id, self.changes[id][1]) for topic, id in newest.items()
                    if self.changes[id][1] is not None}
        for topic in sorted(expected.keys() | values.keys()):
            if expected.get(topic) != values.get(topic):
                wrong.append(f"{name} has {values.get(topic)} at {topic}, and it is "
                             f"{expected.get(topic)}")
        have = {id for id, topic, _ in history if topic in kept}
        must = {id for id, (topic, _) in self.changes.items()
                if id.epoch == self.last_epoch and topic in kept}
        if not self.may_lose and have != must:
            lacks, more = sorted(must - have), sorted(have - must)
            wrong.append(f"{name} lacks {len(lacks)} of the order, {lacks[:3]}, and has "
                         f"{len(more)} that nobody else has, {more[:3]}")
        self.violations += wrong
        return wrong
