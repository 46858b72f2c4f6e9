"""What is wrong with the machine is said in one line before any job, and what to do."""

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import pyspark_anabranch
from anabranch.errors import ConfigError
from pyspark_anabranch import environment
from pyspark_anabranch.session import spark_session


@pytest.fixture
def programs(tmp_path):
    def make(name, script):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.goal("spark.C26", part="python", broken_by="spark_trusts_the_worker_python")
def test_a_python_without_the_packages_is_refused_in_one_line(programs):
    poor = programs("python", "echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2; exit 1")
    with pytest.raises(ConfigError) as refused:
        environment.prepare({"PYSPARK_PYTHON": poor, "PATH": "/usr/bin:/bin"})
    assert str(refused.value) == (
        f"PYSPARK_PYTHON is {poor}, which cannot run tasks (ModuleNotFoundError: No module named "
        f"'pyarrow'): unset it, or set it to {sys.executable}"
    )
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON is /nowhere/python, which cannot run"):
        environment.check_worker_python({"PYSPARK_PYTHON": "/nowhere/python"})
    assert environment.check_worker_python({}) == sys.executable


@pytest.mark.goal("spark.C26", part="java", broken_by="spark_takes_any_java")
def test_java_is_found_packaged_or_missed_in_one_line(programs, monkeypatch):
    old = programs("old/bin/java", "echo 'openjdk version \"1.8.0_402\"' >&2")
    new = programs("new/bin/java", "echo 'openjdk version \"21.0.2\"' >&2")
    folders = {path: path.removesuffix("/bin/java") for path in (old, new)}
    assert environment.java_home({"JAVA_HOME": folders[new]}) is None
    assert environment.java_home({"PATH": f"{folders[new]}/bin"}) is None
    packaged = environment.java_home({"JAVA_HOME": folders[old]})
    assert packaged is not None
    monkeypatch.setattr(environment, "_packaged_java", lambda: None)
    with pytest.raises(ConfigError, match=r"/old/bin/java is Java 8; Spark needs 17 or newer: ins"):
        environment.java_home({"JAVA_HOME": folders[old]})
    with pytest.raises(ConfigError, match=r"no Java \(in the path\); .*'anabranch\[java\]'"):
        environment.java_home({"PATH": "/nowhere"})


def test_the_packaged_java_is_not_asked_for_what_it_has_not(programs):
    echo = programs("java", 'for each do echo "<$each>"; done')
    home = environment.shim_home(echo)
    done = subprocess.run(
        [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<Main>"]


@pytest.mark.goal("spark.C26", part="packages", broken_by="spark_takes_any_package")
@pytest.mark.parametrize(
    ("package", "found", "words"),
    [
        (
            "pandas",
            "3.0.1",
            r"pandas 3\.0\.1 does not work here; 2\.2 or newer and below 3 is want",
        ),
        ("pyarrow", "17.0.0", r"pyarrow 17\.0\.0 does not work here; 18 or newer is wanted"),
    ],
)
def test_packages_of_other_versions_are_refused(monkeypatch, package, found, words):
    plain = environment.version
    fake = lambda name: found if name == package else plain(name)  # noqa: E731
    monkeypatch.setattr(environment, "version", fake)
    with pytest.raises(ConfigError, match=words):
        environment.check_packages()


def test_a_good_machine_says_so_in_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "pyspark_anabranch"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("Spark 4.")
    assert done.stdout.count("\n") == 1


@pytest.fixture
def python_without(tmp_path):
    """Run a Python that sees all that is installed here but one package."""

    def run(package, *arguments):
        site = tmp_path / package
        site.mkdir(exist_ok=True)
        for entry in Path(sysconfig.get_path("platlib")).iterdir():
            hidden = entry.name.partition("-")[0].lower() == package or entry.suffix == ".pth"
            if not hidden and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
        code = Path(pyspark_anabranch.__file__).parents[1]
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{code}:{site}"},
        )  # fmt: skip

    return run


SESSION = """
from anabranch.errors import ConfigError
from pyspark_anabranch.session import spark_session
try:
    spark_session()
except ConfigError as error:
    print(error)
"""
SOURCE = """
from anabranch.errors import ConfigError
import pyspark_anabranch
try:
    pyspark_anabranch.DefaultSource
except ConfigError as error:
    print(error)
"""


@pytest.mark.goal("spark.C26", part="packages", broken_by="spark_takes_any_package")
@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas", "numpy"])
def test_a_package_that_is_not_there_is_named_in_one_line_wherever_one_begins(
    python_without, monkeypatch, package
):
    plain = environment.version

    def found(name):
        if name == package:
            raise PackageNotFoundError(name)
        return plain(name)

    monkeypatch.setattr(environment, "version", found)
    with pytest.raises(ConfigError, match=f"{package} is not installed: pip install"):
        environment.check_packages()
    wanted = f"{package} is not installed: pip install 'anabranch[spark]'\n"
    told = python_without(package, "-m", "pyspark_anabranch")
    assert (told.returncode, told.stdout, told.stderr) == (1, wanted, "")
    for begin in (SESSION, SOURCE):
        told = python_without(package, "-c", begin)
        assert (told.stdout, told.stderr) == (wanted, "")
    told = python_without(package, "-m", "anabranch", "spark", "check-history", "nowhere")
    assert (told.returncode, told.stdout, told.stderr) == (2, "", f"error: {wanted}")


def test_spark_finds_the_source_though_it_is_loaded_late(spark, topics):
    loaded = "import sys, pyspark_anabranch; print('pyspark_anabranch.source' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = pyspark_anabranch.Other
    topics.fill("found-late", [b"one", b"two"])
    found = spark.read.format("anabranch").options(**topics.options(topic="found-late")).load()
    assert sorted(row["value"] for row in found.collect()) == [b"one", b"two"]


@pytest.mark.broken_by("spark_keeps_state_in_java")
def test_the_state_of_a_stream_is_not_kept_in_the_heap_of_java(spark, topics, tmp_path):
    topics.fill("counted", [b"a", b"b", b"a"])
    rows = spark.readStream.format("anabranch").options(
        **topics.options(topic="counted", start="earliest")
    )
    counts = rows.load().groupBy("value").count().writeStream.outputMode("complete")
    counts = counts.format("memory").queryName("counted_values")
    query = counts.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    found = {row["value"]: row["count"] for row in spark.table("counted_values").collect()}
    assert found == {b"a": 2, b"b": 1}
    (operator,) = query.recentProgress[0]["stateOperators"]
    assert any(name.startswith("rocksdb") for name in operator["customMetrics"])
    cores = spark.sparkContext.defaultParallelism
    assert 2 * cores <= operator["numShufflePartitions"] <= 4 * cores


def test_there_are_a_few_shuffle_partitions_for_each_core_unless_somebody_says_how_many(spark):
    name, cores = "spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism
    ours = spark.conf.get(name)
    assert 2 * cores <= int(ours) <= 4 * cores
    try:
        assert spark_session(settings={name: "77"}).conf.get(name) == "77"
        assert spark_session().conf.get(name) == ours
    finally:
        spark.conf.set(name, ours)


def test_a_worker_loads_no_stores_unless_it_reads_them() -> None:
    """Each query after a quiet minute waits for workers that load everything anew."""
    loaded = (
        "import sys, pyspark_anabranch.source;"
        "print([name for name in sys.modules if name.startswith('anabranch.ledgers.bookkeeper')"
        " or name == 'anabranch.metadata.factory'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
