"""What Spark itself cannot do ends a command with one line, and not as if something was found."""

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from typer.testing import CliRunner

from anabranch.cli.main import app
from pyspark_anabranch.failures import one_line

WORKER = """Job aborted due to stage failure: Task 0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "rows.py", line 7, in fail
    raise Unreachable("no bookie answers")
anabranch.errors.Unreachable: no bookie answers

\tat org.apache.spark.Executor: run
"""


@pytest.mark.parametrize("kind", [PySparkRuntimeError, Py4JError])
def test_it_is_one_line_and_code_2(monkeypatch, kind):
    def refused(*_):
        raise kind("An error occurred while calling o1.x.\n: [GATEWAY] Java ended.\n\tat a.B")

    monkeypatch.setattr("pyspark_anabranch.session.spark_session", refused)
    done = CliRunner().invoke(app, ["spark", "check-history", "anywhere"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == ["error: Spark: [GATEWAY] Java ended."]


def test_of_a_worker_the_line_is_what_it_raised():
    assert one_line(WORKER) == "anabranch.errors.Unreachable: no bookie answers"
    assert one_line("\n") == "no reason was given"
