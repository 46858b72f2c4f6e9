"""Gets the real servers, and runs those that a cluster of ours stands on, to try it by hand.

python -m anabranch.testing.servers fetch
python -m anabranch.testing.servers zookeeper --port 2181
python -m anabranch.testing.servers bookies zk:127.0.0.1:2181
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.testing.servers.bookkeeper import bookkeeper
from anabranch.testing.servers.cache import pinned
from anabranch.testing.servers.fetch import fetch
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.zookeeper import zookeeper
from anabranch.testing.stopping import run_program


def _fetch() -> None:
    """Fetch what the lock file pins and the cache lacks, and print where each lies."""
    find_java()
    for name, artifact in pinned().items():
        print(f"{name}: {fetch(artifact, say=print)}")


def _run(servers: AbstractContextManager[Any], what: str) -> None:
    """Run servers until this process is told to stop; what they hold goes with them."""
    with servers:
        print(f"{what} until Ctrl-C; nothing is kept", flush=True)
        signal.pause()


def main(arguments: Sequence[str]) -> int:
    """Do what one word asks for."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.servers")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("fetch", help="fetch the pinned servers into the cache, if absent")
    one = actions.add_parser("zookeeper", help="run a ZooKeeper until Ctrl-C")
    one.add_argument("--port", type=int, default=2181, help="for clients (default: %(default)s)")
    several = actions.add_parser("bookies", help="run bookies until Ctrl-C")
    several.add_argument("metadata_url", help="of a store that `anabranch cluster init` prepared")
    several.add_argument("--count", type=int, default=3, help="how many (default: %(default)s)")
    asked = parser.parse_args(arguments)
    try:
        if asked.action == "fetch":
            _fetch()
        elif asked.action == "zookeeper":
            _run(zookeeper(port=asked.port), f"ZooKeeper runs at zk:127.0.0.1:{asked.port}")
        else:
            _run(bookkeeper(asked.metadata_url, asked.count), f"{asked.count} bookies run")
    except AnabranchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_program(main)
