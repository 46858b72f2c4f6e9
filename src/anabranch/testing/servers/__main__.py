"""`python -m anabranch.testing.servers fetch`: get the real servers once."""

import argparse
import sys

from anabranch.errors import AnabranchError
from anabranch.testing.servers.cache import pinned
from anabranch.testing.servers.fetch import fetch
from anabranch.testing.servers.java import find_java


def main() -> int:
    """Fetch what the lock file pins and the cache lacks, and print where each lies."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.servers")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("fetch", help="fetch the pinned servers into the cache, if absent")
    parser.parse_args()
    try:
        find_java()
        for name, artifact in pinned().items():
            print(f"{name}: {fetch(artifact, say=print)}")
    except AnabranchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
