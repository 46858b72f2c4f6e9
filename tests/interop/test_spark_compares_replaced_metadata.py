"""The metadata store of a running broker is replaced, and Spark compares the two stores."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from anabranch.testing.large_replacement import fill, missing
from anabranch.testing.planted import child_command
from anabranch.testing.servers.replaceable_cluster import replaceable_cluster

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NODES = 500
WATCH_S_MAX = 400.0


def migrate(web_url: str, *words: str) -> str:
    """Run a command; it ends well."""
    done = subprocess.run(
        child_command("anabranch", "migrate", "metadata", *words, "--web-url", web_url),
        capture_output=True,
        text=True,
        timeout=WATCH_S_MAX,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


@pytest.mark.goal("spark.B2", part="zookeeper to oxia")
def test_spark_compares_both_stores_before_the_switch(tmp_path: Path) -> None:
    with replaceable_cluster(
        tmp_path / "servers", 1, broker_options=("--metadata-migration-spark", "local[1,2]")
    ) as cluster:
        asyncio.run(fill(cluster.source.url, NODES))
        (web_url,) = cluster.web_urls
        target = cluster.target.url
        assert "spark compares everything" in migrate(web_url, "plan", target, "--bulk", "spark")
        migrate(web_url, "start", target, "--bulk", "spark")
        migrate(web_url, "watch")
        found = json.loads(migrate(web_url, "status", "--output", "json"))
        assert found["phase"] == "switched"
        assert not found["error"]
        assert asyncio.run(missing(target, NODES)) == []
        log = cluster.brokers.members[0].log.read_text()
    compared = [line for line in log.splitlines() if "compared_by_an_engine" in line]
    assert len(compared) == 1, log[-3000:]
    assert "comparing here" not in log, "the driver did not have to"
