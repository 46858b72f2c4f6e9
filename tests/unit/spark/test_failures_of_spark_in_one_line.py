"""What Spark itself cannot do ends a command with one line, and not as if something was found."""

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from typer.testing import CliRunner

from anabranch.cli.main import app
from pyspark_anabranch.failures import one_line
from pyspark_anabranch.session import check_master

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
    stopped = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
    assert "nobody answers at its master" in one_line(stopped)
    assert one_line("\n") == "no reason was given"


@pytest.mark.parametrize(
    "master", ["nonsense", "", "local[x]", "local[0]", "local[2,0]", "spark://", "http://one:7077"]
)
def test_a_master_that_is_none_is_named_before_java_is_started(monkeypatch, master):
    monkeypatch.setattr("pyspark_anabranch.session.prepare", lambda: pytest.fail("too late"))
    done = CliRunner().invoke(app, ["spark", "check-history", "anywhere", "--master", master])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == (
        "error: a master of Spark is local[N], local[*], spark://host:port, k8s://… or yarn, "
        f"not {master!r}"
    )


def test_masters_of_all_kinds_are_taken():
    for master in (
        "local", "local[*]", "local[2]", "local[*,4]", "local[2, 4]", "local-cluster[2,1,1024]",
        "spark://one:7077,two:7077", "k8s://https://one:6443", "yarn",
    ):  # fmt: skip
        check_master(master)
