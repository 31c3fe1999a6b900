"""Tests what puts the host back: files stand for settings of the kernel.

    python3 -m unittest discover --start-directory bench
"""

import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True

from measure import host  # noqa: E402
from measure.bench import MeasurementError  # noqa: E402

# Stands for `stentor tune`: with --apply it changes the file as the kernel would, and says so.
TUNE = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
changes = [{"setting": {"file": "%(file)s"}, "now": "1 2 3", "wanted": "4 5 6"},
           {"setting": "workers", "now": "2", "wanted": "59"}]
finding = {"rule": "tcp-memory", "severity": "blocks", "why": "too little", "changes": changes}
applied = []
if "--apply" in sys.argv:
    Path("/%(file)s").write_text("4\\t5\\t6")
    applied = [{"change": changes[0], "error": None}]
print(json.dumps({"need": {"workers": 59}, "findings": [finding], "applied": applied}))
sys.exit(1)
"""


class HostTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.setting = directory / "tcp_mem"
        self.setting.write_text("1\t2\t3\n")
        self.saved = directory / "saved.json"
        self.enterContext(mock.patch.object(host, "SAVED", self.saved))
        self.enterContext(mock.patch.object(host.table, "progress"))
        self.enterContext(mock.patch.object(os, "geteuid", lambda: 0))
        self.stentor = directory / "stentor"
        self.stentor.write_text(TUNE % {"file": str(self.setting).lstrip("/")})
        self.stentor.chmod(0o755)

    def value(self) -> list[str]:
        return self.setting.read_text().split()

    def test_a_judgement(self) -> None:
        judged = host.Judgement.of(self.stentor, 1, 0.5)
        self.assertEqual(judged.workers, 59)
        self.assertEqual(judged.changes(),
                         [host.Change(str(self.setting).lstrip("/"), self.setting, "1 2 3",
                                      "4 5 6")])
        self.assertEqual(judged.obstacles(), ["tcp-memory: too little"])

    def test_the_host_is_put_back_after_an_error(self) -> None:
        planned = host.Judgement.of(self.stentor, 1, 0.5).changes()
        with self.assertRaises(KeyboardInterrupt):
            with host.tuned(self.stentor, 1, 0.5, planned):
                self.assertEqual(self.value(), ["4", "5", "6"])
                self.assertTrue(self.saved.exists())
                raise KeyboardInterrupt
        self.assertEqual(self.value(), ["1", "2", "3"])
        self.assertFalse(self.saved.exists())

    def test_what_a_killed_run_left_is_put_back_first(self) -> None:
        self.setting.write_text("4 5 6")
        self.saved.write_text(json.dumps({str(self.setting): "1 2 3"}))
        host.restore()
        self.assertEqual(self.value(), ["1", "2", "3"])
        self.assertFalse(self.saved.exists())

    def test_what_cannot_be_put_back_is_kept_in_mind(self) -> None:
        self.setting.write_text("4 5 6")
        gone = "/no-such-directory/setting"
        self.saved.write_text(json.dumps({gone: "1", str(self.setting): "1 2 3"}))
        host.restore()
        self.assertEqual(self.value(), ["1", "2", "3"])
        self.assertEqual(json.loads(self.saved.read_text()), {gone: "1"})

    def test_tune_that_fails_is_an_error(self) -> None:
        self.stentor.write_text("#!/bin/sh\necho 'error: what?' >&2\nexit 2\n")
        with self.assertRaisesRegex(MeasurementError, "what?"):
            host.Judgement.of(self.stentor, 1, 0.5)


if __name__ == "__main__":
    unittest.main()
