"""Which feature levels the data of a cluster is written for, and whether this build may touch it.

The document `/anabranch/features` holds a finalized level per feature. A process whose build does
not know a feature, or not that level of it, must not start: it would misread or damage the data.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.errors import BadVersion, FormatError
from anabranch.metadata.store import ABSENT, MetadataStore

FEATURES_PATH: Final = "/anabranch/features"
DOCUMENT_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class LevelRange:
    """The levels of a feature that a build can work with; 0 stands for "not there"."""

    lowest: int
    highest: int


THIS_BUILD: Final[Mapping[str, LevelRange]] = {
    "metadata-layout": LevelRange(1, 1),
    "ledger-layout": LevelRange(1, 1),
}


def encode_features(levels: Mapping[str, int]) -> bytes:
    """The document for these levels."""
    document = {"format": DOCUMENT_FORMAT, "features": dict(sorted(levels.items()))}
    return json.dumps(document, indent=1).encode()


def decode_features(value: bytes) -> dict[str, int]:
    """Undo `encode_features`.

    Raises:
        FormatError: if it is no such document, or one of a format this build does not know.
    """
    try:
        document = json.loads(value)
    except ValueError as error:
        raise FormatError(f"{FEATURES_PATH} is not JSON: {error}") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != DOCUMENT_FORMAT:
        raise FormatError(
            f"{FEATURES_PATH} has format {found!r}: this build knows {DOCUMENT_FORMAT}"
        )
    levels = document.get("features")
    if not isinstance(levels, dict) or not all(type(level) is int for level in levels.values()):
        raise FormatError(f"{FEATURES_PATH} has no level for each feature")
    return levels


def check_levels(levels: Mapping[str, int], build: Mapping[str, LevelRange]) -> None:
    """Refuse levels that a build cannot work with.

    Raises:
        FormatError: naming every feature that is out of range.
    """
    wrong: list[str] = []
    for feature in sorted({*levels, *build}):
        level = levels.get(feature, 0)
        known = build.get(feature, LevelRange(0, 0))
        if not known.lowest <= level <= known.highest:
            wrong.append(
                f"{feature} is at {level}, this build knows {known.lowest} to {known.highest}"
            )
    if wrong:
        raise FormatError(f"the levels in {FEATURES_PATH} need another build: " + "; ".join(wrong))


async def refuse_unknown_features(
    store: MetadataStore, build: Mapping[str, LevelRange] = THIS_BUILD
) -> None:
    """Refuse to look into data that a build cannot work with; without levels they are older.

    Raises:
        FormatError: naming every feature that is out of range.
    """
    node = await store.get(FEATURES_PATH)
    if node is not None:
        check_levels(decode_features(node.value), build)


async def check_features(
    store: MetadataStore, build: Mapping[str, LevelRange] = THIS_BUILD
) -> Mapping[str, int]:
    """Return the finalized levels; on the first start, finalize the highest this build knows.

    Raises:
        FormatError: if this build must not work with the data.
    """
    node = await store.get(FEATURES_PATH)
    if node is None:
        levels = {feature: known.highest for feature, known in build.items()}
        try:
            await store.put(FEATURES_PATH, encode_features(levels), ABSENT)
        except BadVersion:  # another process was first
            node = await store.get(FEATURES_PATH)
        else:
            return levels
        if node is None:
            raise FormatError(f"{FEATURES_PATH} was deleted while this process started")
    levels = decode_features(node.value)
    check_levels(levels, build)
    return levels
