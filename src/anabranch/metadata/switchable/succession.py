"""Which store has replaced another for good, and how a process finds it that knows the old one.

The store that is left says so in the journal of its replacement; the one that is in use has a
document that names the store it has succeeded. So either of them is enough.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.errors import AnabranchError, ConflictError, FormatError, Unreachable
from anabranch.metadata.announced import (
    OPERATIONS,
    journal_path,
    read_announced,
    read_document,
    write_document,
)
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.postures import LEFT_FOR_GOOD
from anabranch.metadata.transfer.sources import shown
from anabranch.telemetry import get_logger

SUCCEEDS_PATH: Final = f"{OPERATIONS}/succeeds"
_MAGIC: Final = "anabranch-succeeding-store"
_log: Final = get_logger("migrations")
OpenStore = Callable[[str], Awaitable[MetadataStore]]


@dataclass(frozen=True, slots=True)
class Succession:
    """What a store has succeeded."""

    source: str
    """The address of the store that was left, without secrets."""
    attempt: str


class Successor(NamedTuple):
    """What a store was left for, for good."""

    url: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Located:
    """A store that nothing has replaced for good."""

    url: str
    store: MetadataStore


async def succeed(store: MetadataStore, source_url: str, attempt: str) -> None:
    """Make durable that a store is in use for good instead of another one."""
    fields = {"source": shown(source_url), "attempt": attempt}
    await store.put(SUCCEEDS_PATH, write_document(_MAGIC, fields))


async def succession_of(store: MetadataStore) -> Succession | None:
    """What a store has succeeded; None if nothing says so.

    Raises:
        FormatError: if the document is not ours.
    """
    node = await store.get(SUCCEEDS_PATH)
    if node is None:
        return None
    document = read_document(node.value, _MAGIC, SUCCEEDS_PATH)
    if "source" not in document or "attempt" not in document:
        raise FormatError(f"{SUCCEEDS_PATH} does not say what it succeeds")
    return Succession(str(document["source"]), str(document["attempt"]))


async def successor_of(store: MetadataStore, kind: str) -> Successor | None:
    """The store that has replaced this one for good; None if none has.

    Raises:
        FormatError: if the journal is none that this build knows.
    """
    await store.sync()
    node = await store.get(journal_path(kind))
    if node is None:
        return None
    announced = read_announced(node.value)
    if announced.phase != LEFT_FOR_GOOD:
        return None
    return Successor(announced.parameters["target"], announced.attempt)


async def located(url: str, kind: str, open_store: OpenStore, others: Sequence[str]) -> Located:
    """Open the store that has replaced the one at a URL, or that one if none has.

    Args:
        url: of the store that was in use once.
        kind: of the operation that replaces stores.
        open_store: opens one.
        others: where to look if nobody answers at `url`: it may be gone since it was left.

    Raises:
        Unreachable: if nobody answers there, and none of the others has succeeded it.
        ConflictError: if stores name each other, or a successor's address leads to another store.
    """
    passed: list[str] = []
    attempt = ""
    while True:
        if url in passed:
            raise ConflictError(
                f"{' and '.join(map(shown, passed))} each say that the other has replaced it"
            )
        passed.append(url)
        try:
            store = await open_store(url)
        except Unreachable:
            successor = await _successor_among(others, url, open_store)
            if successor is None:
                raise
            _log.warning("metadata_store_is_gone", url=shown(url), instead=shown(successor))
            url, attempt = successor, ""
        else:
            try:
                await _check_came_by(attempt, url, store)
                left = await successor_of(store, kind)
            except BaseException:
                await store.close()
                raise
            if left is None:
                return Located(url, store)
            await store.close()
            _log.warning("metadata_store_was_replaced", url=shown(url), instead=shown(left.url))
            url, attempt = left


async def _check_came_by(attempt: str, url: str, store: MetadataStore) -> None:
    """Make sure that a store is the one that an attempt has led to; none: nobody was led here."""
    if not attempt:
        return
    found = await succession_of(store)
    if found is None or found.attempt != attempt:
        raise ConflictError(
            f"what answers at {shown(url)} from here is not the store that attempt {attempt} has "
            "led to: the address has to lead every process to the same store"
        )


async def _successor_among(others: Sequence[str], url: str, open_store: OpenStore) -> str | None:
    for other in others:
        if other == url:
            continue
        try:
            store = await open_store(other)
        except AnabranchError as error:
            _log.warning("successor_not_asked", url=shown(other), reason=str(error))
            continue
        try:
            found = await succession_of(store)
        finally:
            await store.close()
        if found is not None and found.source == shown(url):
            return other
    return None
