"""The offsets of a stream: a place in every topic, as Spark keeps them in its log. Pure.

    {"persistent://public/default/orders": "17:402:0"}

They are all that a batch is planned from when a query is started again.
"""

from collections.abc import Mapping

from pyspark_anabranch.places import BEGINNING, Place

Offsets = dict[str, Place]


def parse_offsets(document: Mapping[str, str]) -> Offsets:
    """Read offsets as Spark hands them back.

    Raises:
        InputError: if one is no place.
    """
    return {topic: Place.parse(text) for topic, text in document.items()}


def offsets_document(offsets: Offsets) -> dict[str, str]:
    """Offsets as Spark keeps them."""
    return {topic: str(place) for topic, place in sorted(offsets.items())}


def advanced(start: Offsets, end: Offsets) -> Offsets:
    """Offsets that are nowhere before `start`; a topic that is new begins where it begins."""
    merged = dict(start)
    for topic, place in end.items():
        merged[topic] = max(place, start.get(topic, BEGINNING))
    return merged
