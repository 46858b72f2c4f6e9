"""Bundles: the ranges of hashes that a namespace is cut into, as Pulsar cuts them. Pure."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from zlib import crc32

from anabranch.errors import FormatError, InputError
from anabranch.ids import TopicName
from anabranch.ownership.limits import BUNDLES_PER_NAMESPACE_MAX

LOWEST: Final = 0
HIGHEST: Final = 0xFFFFFFFF
BUNDLES: Final = "/namespace"
"""Below it the owners of bundles are found."""


def hash_of(topic: TopicName) -> int:
    """Where a topic is among the bundles of its namespace."""
    return crc32(str(topic).encode())


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """A range of hashes of one namespace: from `low` up to, but without, `high`."""

    namespace: str
    low: int
    high: int
    """The highest hash there is belongs to the bundle that ends with it."""

    @classmethod
    def parse(cls, namespace: str, text: str) -> "Bundle":
        """Read Pulsar's form of a range, `0x00000000_0x40000000`.

        Raises:
            InputError: if it is none.
        """
        low, separator, high = text.partition("_")
        try:
            bundle = cls(namespace, _boundary(low), _boundary(high))
        except ValueError:
            separator = ""
        if not separator or not bundle.low < bundle.high:
            raise InputError(f"{text!r} is no bundle: write it as 0x00000000_0x40000000")
        return bundle

    @property
    def range_text(self) -> str:
        """Pulsar's form of the range."""
        return f"0x{self.low:08x}_0x{self.high:08x}"

    @property
    def path(self) -> str:
        """The node of its owner."""
        return f"{BUNDLES}/{self.namespace}/{self.range_text}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range_text}"

    def holds(self, topic: TopicName) -> bool:
        """Whether a topic belongs to it."""
        if topic.namespace_name != self.namespace:
            return False
        place = hash_of(topic)
        return self.low <= place < self.high or place == self.high == HIGHEST


class NamespaceBundles:
    """How one namespace is cut."""

    def __init__(self, namespace: str, boundaries: Sequence[int] = (LOWEST, HIGHEST)) -> None:
        """`boundaries` rise from the lowest hash to the highest.

        Raises:
            FormatError: if they do not.
        """
        rising = all(a < b for a, b in pairwise(boundaries))
        whole = len(boundaries) > 1 and boundaries[0] == LOWEST and boundaries[-1] == HIGHEST
        if not rising or not whole:
            raise FormatError(f"the bundles of {namespace} do not cover all hashes once")
        if len(boundaries) - 1 > BUNDLES_PER_NAMESPACE_MAX:
            raise FormatError(f"{namespace} has more than {BUNDLES_PER_NAMESPACE_MAX} bundles")
        self._lows = list(boundaries[:-1])
        self.all = [Bundle(namespace, low, high) for low, high in pairwise(boundaries)]

    def of(self, topic: TopicName) -> Bundle:
        """The bundle that a topic belongs to."""
        return self.all[bisect_right(self._lows, hash_of(topic)) - 1]


def equal_boundaries(count: int) -> list[str]:
    """Boundaries of so many bundles of the same size, as Pulsar writes them."""
    assert 1 <= count <= BUNDLES_PER_NAMESPACE_MAX, f"{count} bundles"
    size = (HIGHEST + 1) // count
    return [*(f"0x{index * size:08x}" for index in range(count)), f"0x{HIGHEST:08x}"]


def read_boundaries(data: bytes) -> tuple[int, ...] | None:
    """The boundaries in a document of policies; None if it has none.

    Raises:
        FormatError: if it is no such document.
    """
    try:
        found = json.loads(data)
        boundaries = (found.get("bundles") or {}).get("boundaries")
        return None if boundaries is None else tuple(sorted(map(_boundary, boundaries)))
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(f"no policies with bundles: {error}") from error


def _boundary(text: str) -> int:
    value = int(text, 16)
    if not text.startswith("0x") or not LOWEST <= value <= HIGHEST:
        raise ValueError(f"{text!r} is no boundary of a bundle")
    return value
