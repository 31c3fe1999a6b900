"""Tests the oracle of bench/cluster: it finds whatever it is there to find.

    python3 -m unittest discover --start-directory bench
"""

import sys
import unittest

sys.dont_write_bytecode = True

from chaos.oracle import Attempt, Id, Mark, Order, Outcome, Reader  # noqa: E402


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
        self.all.marks[3] = Mark(at(3), is_told=True)
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
        self.assertEqual(self.found(order), "")
        self.attempts["5"].id = at(7)
        self.assertIn("'5' was acknowledged as e-7", self.found(order))

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


if __name__ == "__main__":
    unittest.main()
