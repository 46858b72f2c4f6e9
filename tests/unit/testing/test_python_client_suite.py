"""How the suite of the Python client is run and told: outcomes as they happen, a table of them."""

import json
import sys

import pytest

from anabranch.testing.python_client_suite import __main__ as command
from anabranch.testing.python_client_suite.outcomes import (
    FileRun,
    Outcome,
    document,
    parse_outcomes,
    table,
)
from anabranch.testing.python_client_suite.service import _check_ports
from anabranch.testing.servers.failures import ServerFailed

TESTS = """
import os
import unittest


class Some(unittest.TestCase):
    def test_a(self):
        pass

    def test_b(self):
        self.assertEqual(1, 2)

    def test_c(self):
        raise OSError("no such spoon")

    def test_d(self):
        self.skipTest("no docker")

    def test_e(self):
        os._exit(7)


class Unprepared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no docker")

    def test_f(self):
        pass
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some_test.py"
    path.write_text(TESTS)
    return path


def test_a_file_that_crashes_leaves_what_it_showed(file, tmp_path):
    run = command.run_file(sys.executable, file, [], tmp_path / "log")
    kinds = [outcome.outcome for outcome in run.outcomes]
    assert kinds == ["passed", "failed", "failed", "skipped"]
    assert run.outcomes[1].test == "some_test.Some.test_b"
    assert "1 != 2" in run.outcomes[1].why
    assert "ended with 7" in run.remark


def test_some_tests_can_be_chosen_and_a_class_can_fail(file, tmp_path):
    run = command.run_file(sys.executable, file, ["test_a", "test_f"], tmp_path / "log")
    assert (run.remark, run.count("passed"), run.count("failed")) == ("", 1, 1)
    assert all(0 <= outcome.seconds < 60 for outcome in run.outcomes)


def test_a_file_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "FILE_S_MAX", 0.5)
    path = tmp_path / "slow_test.py"
    path.write_text("import time; time.sleep(60)")
    run = command.run_file(sys.executable, path, [], tmp_path / "log")
    assert run.remark == "was ended after 0.5 s"
    assert not run.outcomes


def test_the_table_and_the_document_say_what_failed():
    runs = [
        FileRun("a_test.py", (Outcome("a.A.x", "passed", 1.2, ""),)),
        FileRun(
            "b_test.py", (Outcome("b.B.y", "failed", 2.0, "Trace\nTimeOut\n"),), "ended with 7"
        ),
    ]
    lines = table(runs).splitlines()
    assert lines[1].split() == ["a_test.py", "1", "0", "0", "1"]
    assert lines[3].split() == ["all", "1", "1", "0", "3"]
    assert lines[4:] == ["b_test.py: ended with 7", "failed: b.B.y: TimeOut"]
    told = json.loads(document(runs, "3.13.0"))
    assert (told["format"], told["client"]) == ("anabranch-python-client-suite", "3.13.0")
    assert told["files"][1]["outcomes"][0]["why"] == "Trace\nTimeOut\n"


def test_a_line_that_was_cut_off_is_left_out():
    whole = json.dumps({"test": "t", "outcome": "passed", "seconds": 0.1, "why": ""})
    assert parse_outcomes([whole, whole[:20]]) == (Outcome("t", "passed", 0.1, ""),)


def test_ports_that_are_taken_are_named(monkeypatch):
    class Taken:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def setsockopt(self, *_):
            return None

        def bind(self, _):
            raise OSError(98, "Address already in use")

    monkeypatch.setattr("anabranch.testing.python_client_suite.service.socket.socket", Taken)
    with pytest.raises(ServerFailed, match="port 6650, which the suite's tests name, is not free"):
        _check_ports()
