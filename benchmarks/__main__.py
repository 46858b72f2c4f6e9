"""`python -m benchmarks [name ...]`: measure, print one table each, keep raw figures."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from anabranch.errors import AnabranchError
from benchmarks import (
    bookkeeper_append,
    cluster,
    fsync_placement,
    history_check,
    ledger_append,
    ledger_compaction,
    ledger_recovery,
    lock_switch,
    loop_stalls,
    metadata_copy,
    metadata_oxia,
    metadata_replacement,
    metadata_store,
    metadata_zookeeper,
    open_managed_ledgers,
    open_topics,
    perf_loads,
    sdk,
    spark_decoding,
    spark_kafka,
    spark_write_path,
    standalone,
    switchable_metadata,
    wire_codec,
)
from benchmarks.options import Options

SECONDS_MIN: Final = 15
"""pulsar-perf prints its first rate after 10 s, counted from before its JVM is warm."""


BENCHMARKS: Final[dict[str, Callable[[Options], None]]] = {
    "bookkeeper_append": lambda _options: bookkeeper_append.run(),
    "cluster": cluster.run,
    "fsync_placement": lambda _options: fsync_placement.run(),
    "history_check": lambda _options: history_check.run(),
    "ledger_append": lambda _options: ledger_append.run(),
    "ledger_compaction": lambda _options: ledger_compaction.run(),
    "ledger_recovery": lambda _options: ledger_recovery.run(),
    "lock_switch": lambda _options: lock_switch.run(),
    "loop_stalls": lambda _options: loop_stalls.run(),
    "metadata_copy": metadata_copy.run,
    "metadata_oxia": metadata_oxia.run,
    "metadata_replacement": metadata_replacement.run,
    "metadata_store": lambda _options: metadata_store.run(),
    "metadata_zookeeper": metadata_zookeeper.run,
    "open_managed_ledgers": lambda _options: open_managed_ledgers.run(),
    "open_managed_ledgers_on_bookies": lambda _options: open_managed_ledgers.run_on_bookies(),
    "open_topics": open_topics.run,
    "sdk": sdk.run,
    "spark_decoding": lambda _options: spark_decoding.run(),
    "spark_kafka": spark_kafka.run,
    "spark_write_path": spark_write_path.run,
    "standalone": standalone.run,
    "switchable_metadata": lambda _options: switchable_metadata.run(),
    "wire_codec": lambda _options: wire_codec.run(),
}
"""Each runs and prints its table; options that are about servers concern those with servers."""


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r}: choose from {known}")
        return names

    return parse


def _parse(arguments: Sequence[str] | None) -> tuple[list[str], Options]:
    sides, loads = sorted(standalone.SIDES), sorted(perf_loads.LOADS)
    default = Options()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--pairs", type=int, default=default.pairs, help="5 for a record")
    parser.add_argument("--seconds", type=int, default=default.seconds, help="per load")
    parser.add_argument("--sides", type=_names(sides), default=default.sides, help="A or A,B")
    parser.add_argument("--loads", type=_names(loads), default=default.loads, help="A or A,B")
    parser.add_argument("--nodes", type=int, default=None, help="of metadata_replacement")
    parser.add_argument("--profile", action="store_true", help="our side only, under cProfile")
    found = parser.parse_args(arguments)
    if unknown := [name for name in found.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    if found.seconds < SECONDS_MIN:
        parser.error(f"--seconds must be at least {SECONDS_MIN}: pulsar-perf reports every 10 s")
    if found.pairs < 1 or len(found.sides) > 2:
        parser.error("--pairs must be at least 1 and --sides one or two names")
    if found.nodes is not None and found.nodes < 1:
        parser.error("--nodes must be at least 1")
    own = ("anabranch",) if found.profile else found.sides
    return found.names or [*BENCHMARKS], Options(
        found.pairs, found.seconds, own, found.loads, found.profile, found.nodes
    )


def main(arguments: Sequence[str] | None = None) -> int:
    names, options = _parse(arguments)
    try:
        for name in names:
            BENCHMARKS[name](options)
    except AnabranchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
