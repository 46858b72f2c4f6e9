"""Tasks on the executors of a cluster run the driver's code, and read and write topics."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pyspark_anabranch.shipping import is_elsewhere, packed_packages

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def test_what_is_shipped_is_the_code_and_nothing_else():
    with zipfile.ZipFile(packed_packages()) as packed:
        names = set(packed.namelist())
    assert {"pyspark_anabranch/source.py", "pyspark_anabranch/jobs/contract.py"} <= names
    assert "anabranch/wire/entries.py" in names
    assert not [name for name in names if "__pycache__" in name or "/testing/" in name]


@pytest.mark.parametrize(
    ("master", "elsewhere"),
    [
        ("local", False), ("local[*,4]", False), ("local[2]", False),
        ("local-cluster[2,1,1024]", True), ("spark://host:7077", True), ("yarn", True),
    ],
)  # fmt: skip
def test_code_is_shipped_where_tasks_run_elsewhere(master, elsewhere):
    assert is_elsewhere(master) == elsewhere


def test_tasks_of_a_cluster_run_the_code_of_the_driver(topics, tmp_path):
    topics.fill("afar", [b"%03d" % number for number in range(60)])
    topics.fill("afar-copied", [b"before"])
    done = subprocess.run(
        [
            sys.executable, "-m", "anabranch.testing.spark_on_a_cluster",
            topics.server.service_url, topics.server.web_url, "afar", "afar-copied",
            str(tmp_path / "staging"),
        ],
        capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["values"] == [f"{number:03}" for number in range(60)]
    assert said["executors"] == 2
    for place in said["code"]:
        assert ".zip" in place, "not what is installed on this machine"
        assert str(Path(__file__).parents[3] / "src") not in place
    assert sorted(topics.values(topic="afar-copied")[1:]) == sorted(topics.values(topic="afar"))
