"""How far a stream is behind its topics, in rows and bytes: for notebooks, monitors and tests."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyspark_anabranch import broker_calls
from pyspark_anabranch.admission import rows_in
from pyspark_anabranch.offsets import parse_offsets
from pyspark_anabranch.options import Options
from pyspark_anabranch.places import BEGINNING
from pyspark_anabranch.topics import Topics


class Lag(NamedTuple):
    """What waits in a topic, or in one of its partitions."""

    topic: str
    entries: int
    rows: int
    size_bytes: int


def lag_of(offset: str | Mapping[str, str], options: Mapping[str, str]) -> list[Lag]:
    """Say what waits behind an offset of a stream, topic by topic.

    How many rows an entry has is known to nobody but whoever looks at it: everything that waits is
    sent here, and thrown away. What chunks make one row counts as often as there are chunks.

    Args:
        offset: as Spark shows it: `query.lastProgress["sources"][0]["endOffset"]`.
        options: those of the stream.

    Raises:
        NotFound: if a topic is not there any more.
    """
    known = Options(options)
    known.check_topics()
    place = parse_offsets(json.loads(offset) if isinstance(offset, str) else offset)
    maps = Topics(known.access.view(), known).maps()
    ranges = {}
    for name, each in maps.items():
        start = place.get(name, BEGINNING)
        ranges[name] = (start, each.spans(start, each.end))
    waiting = broker_calls.run(
        broker_calls.look_at_all(
            known.access, ranges, rows_max=None, bytes_max=None, wait_s=known["readTimeout"]
        )
    )
    return [
        Lag(
            each.topic,
            each.backlog,
            rows_in([each]),
            sum(entry.size_bytes for entry in each.entries),
        )
        for each in waiting
    ]
