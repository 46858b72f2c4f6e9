"""Drill of replacing a large metadata store: writes wait no longer for it than for a small one.

    python -m anabranch.testing.replace_large_metadata_drill --nodes 1000000 --rounds 2

Two brokers of ours on a real ZooKeeper with so many nodes of about 500 bytes; an empty Oxia takes
its place while namespaces are made and changed and stock clients publish all the time, `--rounds`
times, and ZooKeeper takes its own place back in between. Every node and every write that was
acknowledged must be in Oxia afterwards, every message must have come once, and writes may have been
held for `--freeze-s` at most, each time. How long publishing took before, meanwhile and while
writes were held is told only; at most twice the 99th percentile of before is wanted. The verdict is
one line of JSON; exit code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.testing.drill_folders import DrillFolder
from anabranch.testing.large_replacement import Replacement, replaced_by_ours
from anabranch.testing.stopping import run_program


def violations_of(found: Replacement, freeze_s_max: float) -> list[str]:
    """What should not have come of it."""
    wrong = [f"lost: {each}" for each in found.lost[:20]]
    if found.freeze_s > freeze_s_max:
        wrong.append(f"writes were held for {found.freeze_s:.3f} s")
    if found.published is not None:
        wrong += found.published.wrong
    if found.refused:
        wrong.append(f"writes were refused: {found.refused}")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run the drill and print its verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.replace_large_metadata_drill"
    )
    add = parser.add_argument
    add("--nodes", type=int, default=1_000_000, help="default: %(default)s")
    add("--brokers", type=int, default=2, help="default: %(default)s")
    add("--rounds", type=int, default=1, help="how often it goes there (default: %(default)s)")
    add("--rate", type=float, default=200.0, help="messages per second (default: %(default)s)")
    add("--freeze-s", type=float, default=1.0, help="longest hold (default: %(default)s)")
    add("--folder", type=Path, default=None, help="for data and logs; kept (default: new)")
    asked = parser.parse_args(arguments)
    if asked.nodes < 1 or asked.brokers < 1 or asked.rounds < 1:
        parser.error("at least one node, one broker and one round are needed")
    if asked.rate < 0:
        parser.error("--rate must not be below 0; at 0 nobody publishes")
    folder = DrillFolder.named(asked.folder, "anabranch-replaced-large-")
    try:
        found = replaced_by_ours(
            asked.nodes,
            folder.path,
            asked.brokers,
            rounds=asked.rounds,
            publish_rate=asked.rate,
        )
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    wrong = violations_of(found, asked.freeze_s)
    figures: dict[str, float] = {f"{name}_ms": took for name, took in found.phases_ms.items()}
    figures |= {f"freeze_{at}_s": took for at, took in enumerate(found.freezes_s, start=1)}
    if found.published is not None:
        figures |= found.published.figures
    verdict = {
        "drill": "replace large metadata",
        "status": "violated" if wrong else "clean",
        **found.as_json(),
        "figures": figures,
        "brokers": asked.brokers,
        "rounds": asked.rounds,
        "violations": wrong,
    }
    print(json.dumps(verdict))
    if wrong:
        return 1
    folder.drop_unless_wanted()
    return 0


if __name__ == "__main__":
    run_program(main)
