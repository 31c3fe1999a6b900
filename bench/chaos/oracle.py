"""What must hold of a cluster, whatever has failed: no process, no socket, no clock.

Everything that readers were sent, and that nodes have in the end, makes the *order*: which id is
which change. It is compared with what publishers were answered, with what each reader was sent from
cursor to cursor, and with what each node has. What a publisher was answered is not in the order by
that: else it could not be missed.

What a broker loses makes another life of the order (another EPOCH). With `may_lose`, the last life
alone is held to all of it, and of that what was published since the last loss: of the others it is
only checked that readers were told.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import NamedTuple

DELETED = None
# Behind a gap a reader has another cursor, so that it is not told again; but it may have been cut
# off before it got that.
SAME_GAPS_MAX = 20
# What a gap may be told for, by docs/http/streams.md. A history here keeps all but what was
# deleted, whatever was started anew: readers go from node to node "without a gap". A host may be
# short of memory. Cursors are ids, and topics are few: no reader may be told `cursor_invalid` or
# `too_many_topics`.
HISTORY, ALWAYS = "history_trimmed", {"history_trimmed", "memory_pressure"}
OF_A_LOSS = {"epoch_changed", "cursor_ahead", "rolled_back"}


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
    # When it was begun and answered, by a clock that counts both.
    begun: int = 0
    answered: int = 0
    is_mismatch: bool = False  # It was refused since its condition did not hold.
    losses: int = 0  # So often had the broker lost something when it was begun.


class Mark(NamedTuple):
    """How far a reader is: it has all up to here."""

    id: Id
    is_sent: bool = True  # This change itself was sent, not its number alone.
    # Why there is a gap between the mark before and this one, if it was told of one.
    told: str = ""


@dataclass
class Reader:
    """Everything that a reader was sent, over all its connections."""

    topic: str | None  # None: all of them.
    name: str = ""
    marks: list[Mark] = field(default_factory=list)
    # Of each gap, the cursor before it and the reason.
    gaps: list[tuple[Id, str]] = field(default_factory=list)
    told: str = ""
    told_at: int = 0

    def connect(self) -> None:
        """A stream begins, or another answer: what is told is told again."""
        self.told = ""

    def tell(self, reason: str, now: int) -> None:
        self.gaps.append((self.marks[-1].id, reason))
        self.told, self.told_at = reason, now

    def reach(self, id: Id, is_sent: bool, begun: int = 0) -> None:
        """It has all up to this change, whose attempt was begun then. What there was when the gap
        was told comes first, and may lack something; whatever was begun later comes behind it, and
        so does a cursor by itself. From there on nothing may be missing."""
        self.marks.append(Mark(id, is_sent, self.told))
        if not is_sent or begun > self.told_at:
            self.told = ""


def unchecked(rounds: int, faults: int, acknowledged: int, steps: int) -> list[str]:
    """Why it says nothing that all is well."""
    counted = {"round": rounds, "fault": faults, "change acknowledged under faults": acknowledged,
               "step of a reader": steps}
    return [f"nothing was checked: there was no {what}" for what, n in counted.items() if not n]


# A topic and its data.
Change = tuple[str, str | None]


class Order:
    """Which id is which change."""

    def __init__(self, may_lose: bool = False) -> None:
        self.may_lose = may_lose
        self.losses = 0
        self.changes: dict[Id, Change] = {}
        # What publishers were answered.
        self.answers: dict[Id, Change] = {}
        self.attempts: dict[str, Attempt] = {}
        # EPOCH and topic -> its last deletion.
        self.deleted: dict[tuple[str, str], int] = {}
        self.violations: list[str] = []
        self.last_epoch = ""
        self.places: dict[tuple[str, str | None], list[int]] = {}
        self.steps = 0
        self.told = 0

    def saw(self, id: Id, topic: str, data: str | None, who: str = "somebody") -> None:
        """Somebody was sent a change."""
        self.compare(self.changes, self.answers, id, (topic, data), who)

    def answered(self, id: Id, topic: str, data: str, who: str = "a publisher") -> None:
        """A publisher was told that this is its change."""
        self.compare(self.answers, self.changes, id, (topic, data), who)

    def is_excused(self, reason: str) -> bool:
        return reason in ALWAYS or self.may_lose and reason in OF_A_LOSS

    def compare(self, same: dict[Id, Change], other: dict[Id, Change], id: Id, change: Change,
                who: str) -> None:
        """Remembers a change, with what is known of its id from readers and from publishers."""
        for known in (same.setdefault(id, change), other.get(id, change)):
            # Between a loss and the moment it is found a number may be given twice.
            if known != change and not self.may_lose:
                self.violations.append(f"{id} is {known}, and for {who} {change}")

    def judge(self, last: Id, attempts: dict[str, Attempt], deletions: dict[str, tuple[int, int]],
              readers: Iterable[Reader]) -> list[str]:
        """All of it. `last` is a change behind all others; `deletions` are those that were
        acknowledged of each topic, and those of which nobody knows."""
        self.last_epoch, self.attempts = last.epoch, attempts
        for id, (topic, data) in sorted(self.changes.items()):
            if data is DELETED:
                self.deleted[id.epoch, topic] = id.seq
        self.judge_attempts(attempts)
        # What nobody was sent, but is no violation, has its place all the same.
        for data, attempt in attempts.items():
            if attempt.outcome is Outcome.TAKEN and self.is_held(attempt.id) \
                    and self.is_kept(attempt):
                self.changes.setdefault(attempt.id, (attempt.topic, data))
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
        self.judge_conditions(attempts, by_topic)
        self.judge_refusals(attempts, by_topic)
        self.judge_deletions(deletions, by_topic)
        for reader in readers:
            self.judge_reader(reader)
        return self.violations

    def is_held(self, id: Id) -> bool:
        return not self.may_lose or id.epoch == self.last_epoch

    def is_kept(self, attempt: Attempt) -> bool:
        """Nothing was lost since, so that it must be there if it was acknowledged."""
        return not self.may_lose or attempt.losses == self.losses

    def was_deleted(self, id: Id, topic: str) -> bool:
        """With what the topic had, so that it is shown to nobody who was away meanwhile."""
        return id.seq <= self.deleted.get((id.epoch, topic), -1)

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
                    and self.is_kept(attempt) \
                    and (there or not self.was_deleted(attempt.id, attempt.topic)):
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
                # In another life it is a value that goes on; and what was judged before a loss may
                # be published again by the node that alone has it.
                if condition and self.is_held(id) and self.is_kept(attempt) \
                        and not (is_new and self.may_lose):
                    wanted = None if condition == "*" else condition
                    if was_there != wanted:
                        self.violations.append(f"{id} of {topic} was to follow {condition}, and "
                                               f"follows {before}")
                before = id

    def judge_refusals(self, attempts: dict[str, Attempt], by_topic: dict[str, list[Id]]) -> None:
        """Who has read a value, named it and was told that it is not there any more was told so
        rightly, unless whatever came behind that value was begun after the refusal."""
        following = {id: after for ids in by_topic.values()
                     for id, after in zip(ids, [*ids[1:], None], strict=True)}
        for data, attempt in attempts.items():
            named = attempt.condition
            if self.may_lose or not attempt.is_mismatch or named not in following:
                continue
            after = following[named]
            by = attempts.get(self.changes[after][1]) if after else None
            if after is None or by and by.begun > attempt.answered:
                self.violations.append(f"{data!r} was refused since {attempt.topic} was not {named}"
                                       f" any more, and it was until {after or 'the end'}")

    def judge_deletions(self, deletions: dict[str, tuple[int, int]],
                        by_topic: dict[str, list[Id]]) -> None:
        for topic, (taken, unknown) in deletions.items():
            there = sum(self.changes[id][1] is None for id in by_topic[topic])
            if not self.may_lose and not taken <= there <= taken + unknown:
                self.violations.append(f"{topic} was deleted {taken} times, and perhaps {unknown} "
                                       f"more: there are {there} deletions")

    def judge_reader(self, reader: Reader) -> None:
        """Between two marks nothing is left out, or the reader was told."""
        for (id, reason), same in groupby(reader.gaps):
            self.judge_gap(reader, id, reason)
            times = len(list(same))
            if times > SAME_GAPS_MAX:
                self.violations.append(f"{reader.name}: {times} times a gap behind {id}, {reason}")
        before = None
        for mark in reader.marks:
            # A history that was lost with its life is another matter than one that was deleted.
            is_open = mark.told and (mark.told != HISTORY or self.may_lose)
            if before is None or is_open:
                self.told += bool(mark.told)
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
        missing = [Id(mark.id.epoch, seq) for seq in places[begin:end]]
        if mark.told:
            missing = [id for id in missing if not self.was_deleted(id, self.changes[id][0])]
        if missing:
            self.violations.append(f"{reader.name}: {len(missing)} missing between {before} and "
                                   f"{mark.id}, from {missing[0]} on"
                                   f"{', and no deletion' if mark.told else ''}")

    def judge_gap(self, reader: Reader, id: Id, reason: str) -> None:
        if not self.is_excused(reason):
            why = "" if self.may_lose else ", and nothing was lost"
            self.violations.append(f"{reader.name}: a gap behind {id}, {reason}{why}")
        elif reason == HISTORY and not self.may_lose:
            topics = [topic for _, topic in self.deleted] if not reader.topic else [reader.topic]
            if not any(self.was_deleted(Id(id.epoch, id.seq + 1), topic) for topic in topics):
                self.violations.append(f"{reader.name}: a gap behind {id}, {reason}, and nothing "
                                       f"was deleted since")

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
        if self.may_lose:
            # What else there is was perhaps lost, and perhaps not.
            must = {attempt.id for attempt in self.attempts.values()
                    if attempt.outcome is Outcome.TAKEN and self.is_kept(attempt)
                    and attempt.topic in kept}
            have &= must
        if have != must:
            lacks, more = sorted(must - have), sorted(have - must)
            wrong.append(f"{name} lacks {len(lacks)} of the order, {lacks[:3]}, and has "
                         f"{len(more)} that nobody else has, {more[:3]}")
        self.violations += wrong
        return wrong
