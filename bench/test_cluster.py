"""Tests the oracle of bench/cluster: it finds whatever it is there to find.

    python3 -m unittest discover --start-directory bench
"""

import asyncio
import random
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.dont_write_bytecode = True

from chaos import clients  # noqa: E402
from chaos.clients import Round, Wanderer  # noqa: E402
from chaos.faults import Faults  # noqa: E402
from chaos.oracle import (  # noqa: E402
    Attempt,
    Id,
    Mark,
    Order,
    Outcome,
    Reader,
    unchecked,
)
from chaos.world import Link, Node  # noqa: E402
from measure.client import Silent, ask_soon  # noqa: E402


def at(seq: int, epoch: str = "e") -> Id:
    return Id(epoch, seq)


class OracleTest(unittest.TestCase):
    def setUp(self) -> None:
        """Three messages of two topics, and a deletion."""
        self.order = self.some_order()
        self.attempts = {
            "1": Attempt("/a", None, Outcome.TAKEN, at(1)),
            "2": Attempt("/b", None, Outcome.UNKNOWN),
            "3": Attempt("/a", at(1), Outcome.TAKEN, at(3)),
            "4": Attempt("/a", at(1), Outcome.REFUSED)}
        self.deletions = {"/b": (1, 0)}
        self.all = Reader(None, "all", [Mark(at(0), False), Mark(at(1)), Mark(at(2)), Mark(at(3)),
                                        Mark(at(4))])
        self.one = Reader("/a", "one", [Mark(at(0), False), Mark(at(1)), Mark(at(2), False),
                                        Mark(at(3)), Mark(at(4), False)])

    def some_order(self, may_lose: bool = False) -> Order:
        order = Order(may_lose)
        order.saw(at(1), "/a", "1")
        order.saw(at(2), "/b", "2")
        order.saw(at(3), "/a", "3")
        order.saw(at(4), "/b", None)
        return order

    def found(self, order: Order | None = None) -> str:
        order = order or self.order
        return "; ".join(order.judge(at(9), self.attempts, self.deletions, [self.all, self.one]))

    def test_all_is_well(self) -> None:
        self.assertEqual(self.found(), "")
        self.assertEqual(self.order.steps, 8)

    def test_an_id_of_two_changes(self) -> None:
        self.order.saw(at(2), "/b", "5", "reader 7")
        self.assertIn("e-2 is ('/b', '2'), and for reader 7", self.found())

    def test_what_was_acknowledged_is_lost_or_moved(self) -> None:
        self.attempts["5"] = Attempt("/a", None, Outcome.TAKEN, at(5))
        self.assertIn("'5' was acknowledged as e-5 of /a, and is not there", self.found())
        self.attempts["5"].outcome = Outcome.UNKNOWN
        self.order = self.some_order()
        self.attempts["1"].id = at(2)
        self.assertIn("acknowledged as e-2", self.found())

    def test_what_was_refused_or_nobody_published_is_there(self) -> None:
        self.order.saw(at(5), "/a", "4")
        self.order.saw(at(6), "/a", "x")
        self.assertIn("'4' was refused, and is e-5", self.found())
        self.assertIn("nobody has published e-6", self.found())

    def test_something_is_there_twice(self) -> None:
        self.order.saw(at(5), "/b", "2")
        self.assertIn("'2' is there twice: e-2, e-5", self.found())

    def test_two_winners(self) -> None:
        self.attempts["4"].outcome = Outcome.UNKNOWN
        self.order.saw(at(5), "/a", "4")
        self.assertIn("e-5 of /a was to follow e-1, and follows e-3", self.found())

    def test_new_though_it_was_there(self) -> None:
        self.attempts["3"].condition = "*"
        self.assertIn("e-3 of /a was to follow *", self.found())
        self.setUp()
        self.attempts["5"] = Attempt("/b", "*", Outcome.TAKEN, at(5))
        self.order.saw(at(5), "/b", "5")
        self.assertEqual(self.found(), "")

    def test_deletions_that_are_lost_or_too_many(self) -> None:
        self.deletions["/b"] = (2, 0)
        self.assertIn("/b was deleted 2 times", self.found())
        self.setUp()
        self.deletions["/b"] = (0, 0)
        self.assertIn("there are 1 deletions", self.found())

    def test_readers_who_miss_something(self) -> None:
        del self.all.marks[2]
        self.assertIn("all: 1 missing between e-1 and e-3, from e-2 on", self.found())
        self.setUp()
        self.all.marks[3] = Mark(at(3), told="memory_pressure")
        del self.all.marks[2]
        self.assertEqual(self.found(), "")
        # A cursor says that all before it was sent.
        self.one.marks[3] = Mark(at(3), False)
        self.assertIn("one: 1 missing between e-2 and e-3", self.found())

    def test_readers_who_are_sent_something_twice(self) -> None:
        self.all.marks.insert(2, Mark(at(1)))
        self.assertIn("all: e-1 comes behind e-1", self.found())

    def test_another_life(self) -> None:
        self.all.marks.append(Mark(at(1, "f")))
        self.assertIn("all: f-1 behind e-4, and no gap", self.found())
        self.order.saw(at(1, "f"), "/a", "3")
        self.assertIn("nothing was lost, and there are the lives", self.found())

    def test_only_the_last_life_is_held_to_all_of_it(self) -> None:
        order = self.some_order(may_lose=True)
        order.saw(at(2), "/b", "5")
        self.attempts["5"] = Attempt("/b", None, Outcome.TAKEN, at(7, "d"))
        order.losses = 1
        self.assertEqual(self.found(order), "")
        self.attempts["5"].id = at(7)
        self.assertEqual(self.found(order), "")
        # What was published since the last loss is to be there, in whatever life.
        self.attempts["5"].losses = 1
        self.assertIn("'5' was acknowledged as e-7", self.found(order))
        order = self.some_order(may_lose=True)
        order.losses, self.attempts["5"].id = 1, at(7, "d")
        self.assertIn("'5' was acknowledged as d-7", self.found(order))

    def test_what_a_publisher_was_answered_is_not_there_by_that(self) -> None:
        self.attempts["5"] = Attempt("/a", None, Outcome.TAKEN, at(5))
        self.order.answered(at(5), "/a", "5")
        self.assertIn("'5' was acknowledged as e-5 of /a, and is not there", self.found())

    def test_what_was_deleted_before_anybody_was_sent_it(self) -> None:
        order = self.some_order()
        del order.changes[at(2)]
        del self.all.marks[2]
        self.attempts["2"] = Attempt("/b", None, Outcome.TAKEN, at(2))
        order.answered(at(2), "/b", "2")
        self.all.marks[2] = Mark(at(3), told="history_trimmed")
        self.assertEqual(self.found(order), "")
        # It has its place, and whoever was there all the time lacks it.
        order = self.some_order()
        del order.changes[at(2)]
        self.all.marks[2] = Mark(at(3))
        self.assertIn("all: 1 missing between e-1 and e-3", self.found(order))

    def test_an_id_of_two_meanings_for_a_publisher(self) -> None:
        self.order.answered(at(2), "/b", "5", "a publisher")
        self.assertIn("e-2 is ('/b', '2'), and for a publisher", self.found())
        self.order = Order()
        self.order.answered(at(2), "/b", "5")
        self.order.saw(at(2), "/b", "2", "a reader")
        self.assertIn("e-2 is ('/b', '5'), and for a reader", "".join(self.order.violations))
        self.order = Order()
        self.order.answered(at(2), "/b", "5")
        self.order.answered(at(2), "/b", "2")
        self.assertEqual(len(self.order.violations), 1)

    def test_a_gap_of_the_history_leaves_out_what_was_deleted_alone(self) -> None:
        self.all.marks[3] = Mark(at(3), told="history_trimmed")
        del self.all.marks[2]
        self.assertEqual(self.found(), "")
        self.setUp()
        self.all.marks[2] = Mark(at(3), told="history_trimmed")
        del self.all.marks[1], self.all.marks[2]
        self.assertIn("all: 1 missing between e-0 and e-3, from e-1 on, and no deletion",
                      self.found())
        # A loss takes histories with it.
        order = self.some_order(may_lose=True)
        self.assertEqual(self.found(order), "")

    def test_gaps_that_nothing_excuses(self) -> None:
        of_a_loss = ("epoch_changed", "cursor_ahead", "rolled_back")
        for reason in (*of_a_loss, "cursor_invalid", "too_many_topics", "new"):
            self.setUp()
            self.all.gaps = [(at(1), reason)]
            self.assertIn(f"all: a gap behind e-1, {reason}, and nothing was lost", self.found())
            is_lost = reason in of_a_loss
            found = self.found(self.some_order(may_lose=True))
            self.assertEqual(found == "", is_lost, found)
        self.setUp()
        trimmed = "history_trimmed"
        self.all.gaps = [(at(1), trimmed), (at(1), "memory_pressure"), (at(3), trimmed)]
        self.assertEqual(self.found(), "")
        self.all.gaps = [(at(4), "history_trimmed")]
        self.assertIn("all: a gap behind e-4, history_trimmed, and nothing was deleted since",
                      self.found())
        self.setUp()
        self.one.gaps = [(at(1), "history_trimmed")]
        self.assertIn("one: a gap behind e-1, history_trimmed, and nothing was deleted since",
                      self.found())

    def test_the_same_gap_again_and_again(self) -> None:
        trimmed = (at(1), "history_trimmed")
        self.all.gaps = [trimmed] * 20 + [(at(1), "memory_pressure"), trimmed]
        self.assertEqual(self.found(), "")
        self.all.gaps = [*self.all.gaps, (at(2), "history_trimmed")] * 2
        self.assertEqual(self.found(), "")
        self.all.gaps = [trimmed] * 21
        self.assertIn("all: 21 times a gap behind e-1, history_trimmed", self.found())

    def test_behind_a_gap_it_is_strict_again(self) -> None:
        reader = Reader(None, "new", [Mark(at(0), False)])
        reader.tell("epoch_changed", 7)
        reader.reach(at(2), True, 3)
        reader.reach(at(3), True, 7)
        reader.reach(at(5), True, 8)
        reader.reach(at(6), True, 2)
        self.assertEqual([mark.told for mark in reader.marks[1:]], ["epoch_changed"] * 3 + [""])
        self.assertEqual(reader.gaps, [(at(0), "epoch_changed")])
        reader.tell("history_trimmed", 9)
        reader.reach(at(7), False)
        reader.reach(at(8), True)
        self.assertEqual([mark.told for mark in reader.marks[-2:]], ["history_trimmed", ""])
        reader.tell("history_trimmed", 9)
        reader.connect()
        reader.reach(at(9), True)
        self.assertEqual(reader.marks[-1].told, "")

    def test_a_refusal_of_what_was_there(self) -> None:
        refused = Attempt("/a", at(1), Outcome.REFUSED, begun=5, answered=8, is_mismatch=True)
        self.attempts["4"] = refused
        self.attempts["3"].begun = 6
        self.assertEqual(self.found(), "")
        self.attempts["3"].begun = 9
        self.assertIn("'4' was refused since /a was not e-1 any more, and it was until e-3",
                      self.found())
        self.order, refused.condition = self.some_order(), at(3)
        self.assertIn("'4' was refused since /a was not e-3 any more, and it was until the end",
                      self.found())
        refused.is_mismatch = False
        self.assertEqual(self.found(self.some_order()), "")

    def test_what_was_judged_before_a_loss_goes_on_in_the_next_life(self) -> None:
        for losses, found in ((0, ""), (1, "e-5 of /a was to follow d-7, and follows e-3")):
            order = self.some_order(may_lose=True)
            order.losses = 1
            order.saw(at(5), "/a", "5")
            self.attempts["5"] = Attempt("/a", at(7, "d"), Outcome.UNKNOWN, losses=losses)
            self.assertEqual(self.found(order), found)

    def test_a_loss_excuses_no_node_that_lacks_what_was_published_since(self) -> None:
        order = self.some_order(may_lose=True)
        order.losses = 1
        self.attempts["1"].losses = 1
        self.attempts["2"] = Attempt("/b", None, Outcome.TAKEN, at(2), losses=1)
        self.found(order)
        values, both = {"/a": (at(3), "3")}, [(at(1), "/a", "1"), (at(3), "/a", "3")]
        self.assertEqual(order.judge_node("n", values, both, {"/a"}), [])
        self.assertEqual(order.judge_node("n", values, both[:1], {"/a"}), [])
        self.assertIn("n lacks 1 of the order", order.judge_node("n", values, both[1:], {"/a"})[0])

    def test_nothing_was_checked(self) -> None:
        self.assertEqual(unchecked(1, 1, 1, 1), [])
        for place, what in enumerate(("round", "fault", "change acknowledged", "step")):
            counted = [1, 1, 1, 1]
            counted[place] = 0
            self.assertIn(f"there was no {what}", "".join(unchecked(*counted)))

    def test_what_nodes_have(self) -> None:
        values = {"/a": (at(3), "3")}
        history = [(at(1), "/a", "1"), (at(3), "/a", "3")]
        wrong = lambda values, history: "; ".join(  # noqa: E731
            self.order.judge_node("n", values, history, {"/a"}))
        self.found()
        self.assertEqual(wrong(values, history), "")
        self.assertIn("n has (Id(epoch='e', seq=2), '2') at /b, and it is None",
                      wrong({**values, "/b": (at(2), "2")}, history))
        self.assertIn("n has None at /a", wrong({}, history))
        self.assertIn("n lacks 1 of the order", wrong(values, history[1:]))
        self.assertIn("has 1 that nobody else has", wrong(values, [*history, (at(5), "/a", "x")]))


class WorldTest(unittest.IsolatedAsyncioTestCase):
    """What is between the oracle and the servers."""

    async def asyncSetUp(self) -> None:
        self.calls, self.says = asyncio.Event(), b""
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def asyncTearDown(self) -> None:
        self.calls.set()
        self.server.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What it is to say, and nothing before it has that or is called off."""
        if self.says:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.says)
            await writer.drain()
        else:
            await self.calls.wait()
        writer.close()

    def round(self, disturbances: list[int]) -> Round:
        node = mock.Mock(control=self.port, port=self.port, is_up=True, generation=1)
        node.name = "n"
        type(node).disturbances = mock.PropertyMock(side_effect=disturbances)
        world = SimpleNamespace(nodes=[node], losses=7)
        return Round("r", world, Order(), random.Random(1), begin=at(0))

    async def publish(self, disturbances: list[int]) -> Round:
        round = self.round(disturbances)
        with mock.patch.object(clients, "ANSWER_SECONDS", 0.1 if not self.says else 30):
            await round.publish(round.nodes[0], "/a", at(4))
        self.assertEqual(round.attempts["r.1"].losses, 7)
        return round

    async def test_a_publisher_whom_nobody_answers(self) -> None:
        round = await self.publish([3, 3])
        self.assertEqual(round.attempts["r.1"].outcome, Outcome.UNKNOWN)
        self.assertEqual(round.order.violations, ["n: PUT /a r.1: nothing for 0.1 s"])
        # Somebody has stopped or ended it meanwhile.
        self.assertEqual((await self.publish([3, 4])).order.violations, [])

    async def test_what_a_publisher_is_answered(self) -> None:
        self.says = b"HTTP/1.1 200 OK\r\nETag: \"e-5\"\r\nContent-Length: 0\r\n\r\n"
        round = await self.publish([3, 3])
        self.assertEqual(round.order.answers, {at(5): ("/a", "r.1")})
        self.assertEqual(round.order.changes, {})
        self.says = b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"
        attempt = (await self.publish([3, 3])).attempts["r.1"]
        self.assertEqual((attempt.outcome, attempt.is_mismatch), (Outcome.REFUSED, True))
        self.assertEqual((attempt.begun, attempt.answered), (1, 2))

    async def test_a_reader_that_is_told_of_a_gap(self) -> None:
        events = ['event: stentor\ndata: {"gap":{"reason":"epoch_changed","resume":"values"}}']
        events += [f'id: e-{seq}\ndata: {{"topic":"/a","id":"e-{seq}","data":"r.{seq}"}}'
                   for seq in (1, 2, 3)]
        self.says = "\n\n".join(["HTTP/1.1 200 OK\r\n\r\n" + events[0], *events[1:], ""]).encode()
        round = self.round([])
        for _ in range(3):
            round.attempt("/a")
        # The second one is begun behind the gap.
        round.clock, round.attempts["r.2"].begun = 7, 8
        reader = Wanderer(round, 3)
        reader.seen.told = "memory_pressure"
        round.ends = {topic: at(3) for topic in round.topics}
        await reader.wander()
        self.assertEqual(reader.seen.gaps, [(at(0), "epoch_changed")])
        told = [mark.told for mark in reader.seen.marks]
        self.assertEqual(told, ["", "epoch_changed", "epoch_changed", ""])
        # What it was told at one connection is not told at the next one.
        self.says = self.says.replace(events[0].encode() + b"\n\n", b"")
        reader = Wanderer(round, 3)
        reader.seen.told, reader.seen.told_at = "memory_pressure", 99
        await reader.wander()
        self.assertEqual([mark.told for mark in reader.seen.marks], [""] * 4)

    async def test_a_link_is_deaf_for_a_while(self) -> None:
        link = await Link(self.port).start()
        await link.turn_deaf()
        with self.assertRaisesRegex(Silent, "nothing for 0.5 s"):
            await ask_soon(link.port, "GET", "/", patience=0.5)
        link.hear()
        self.calls.set()
        # It is heard, and hung up.
        with self.assertRaisesRegex(Exception, "no answer"):
            await ask_soon(link.port, "GET", "/")
        link.hears.cancel()

    def test_a_directory_is_removed_or_damaged_by_a_bit(self) -> None:
        dice = random.Random(1)
        with tempfile.TemporaryDirectory() as directory:
            node, seen = Node(Path(directory), 0, Path("stentor")), set()
            node.configure([], [], 1, "1h", has_data=True)
            self.assertEqual(node.command[-2:], ["--data", str(node.data)])
            for _ in range(40):
                node.data.mkdir(exist_ok=True)
                (node.data / "file").write_bytes(bytes(9))
                spoilt = node.spoil(dice)
                seen.add(spoilt)
                if spoilt == "data removed":
                    self.assertFalse(node.data.exists())
                else:
                    ones = sum(map(int.bit_count, (node.data / "file").read_bytes()))
                    self.assertEqual(ones, spoilt is not None)
            self.assertEqual(seen, {None, "data removed", "data damaged: file"})

    def test_one_node_keeps_its_disk(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            nodes = [Node(Path(directory), number, Path("stentor")) for number in range(3)]
            for node in nodes:
                node.configure([], [], 1, "1h", has_data=True)
                node.data.mkdir()
            faults = Faults(SimpleNamespace(nodes=nodes, brokers=[]), 1, False, [])
            for _ in range(40):
                for node in nodes:
                    faults.spoil(node)
            self.assertEqual(sum(node.data.exists() for node in nodes), 1)


if __name__ == "__main__":
    unittest.main()
