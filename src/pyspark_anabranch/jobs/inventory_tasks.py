"""What the tasks of an inventory do: list ledgers, list names, look again at what seems unused.

Errors come back as values, see `bulk_tasks`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.errors import FormatError, InvalidPath, NotFound
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, State, decode_metadata
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.managed_ledger.references import (
    MANAGED_LEDGER_KEY,
    SCHEMA_KEY,
    references_in,
)
from anabranch.managed_ledger.schemas import SCHEMAS
from anabranch.metadata.credentials import Credentials
from anabranch.metadata.store import MetadataStore, Node
from anabranch.metadata.transfer.pace import Pace
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.migrations.engine.bulk_places import opened
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from pyspark_anabranch.jobs.bulk_tasks import Failure, attempted
from pyspark_anabranch.jobs.inventory_rows import Kind, LedgerRow, NameRow
from pyspark_anabranch.jobs.tree_parts import TreePart

_ROOTS: Final = {MANAGED_LEDGER_KEY: MANAGED_LEDGERS, SCHEMA_KEY: SCHEMAS}
"""Below which node that is for what a ledger says it was made."""


@dataclass(frozen=True, slots=True)
class Looking:
    """A metadata store that tasks look at, not faster than they may."""

    place: StorePlace
    credentials: Credentials
    nodes_per_s: float | None = None

    async def nodes(self, part: TreePart) -> AsyncIterator[Node]:
        """The nodes of a part of the tree."""
        runtime = real_runtime()
        pace = Pace(self.nodes_per_s)
        async with opened(self.place, runtime, self.credentials) as store:
            async for node in _nodes(store, part):
                yield node
                await _rest(runtime, pace, len(node.value))


async def _nodes(store: MetadataStore, part: TreePart) -> AsyncIterator[Node]:
    for path in part.alone:
        node = await store.get(path)
        if node is not None:
            yield node
    for path in part.below:
        async for node in store.scan(path):
            yield node


async def _rest(runtime: Runtime, pace: Pace, size_bytes: int) -> None:
    delay_s = pace.take(runtime.clock.monotonic_s(), size_bytes)
    if delay_s > 0:
        await asyncio.sleep(delay_s)


def row_of(ledger_id: int, node: Node) -> LedgerRow:
    """What a node says of a ledger."""
    try:
        known = decode_metadata(ledger_id, node.value)
    except FormatError as error:
        return LedgerRow(ledger_id, created_ms=node.stat.created_ms, problem=str(error))
    key = next((key for key in _ROOTS if key in known.custom_metadata), "")
    return LedgerRow(
        ledger_id,
        known.state.name.lower().replace("_", " "),
        known.last_entry_id + 1 if known.state is State.CLOSED else 0,
        known.length,
        known.write_quorum,
        node.stat.created_ms if known.ctime_ms is None else known.ctime_ms,
        _noted(known, "component"),
        key,
        _noted(known, key),
    )


def _noted(known: LedgerMetadata, key: str) -> str:
    return known.custom_metadata.get(key, b"").decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class ListLedgers:
    """Says which ledgers there are."""

    looking: Looking
    paths: LedgerPaths

    def __call__(self, part: TreePart) -> list[LedgerRow] | Failure:
        """Do it for one part of the tree."""

        async def work() -> list[LedgerRow]:
            return [
                row_of(ledger_id, node)
                async for node in self.looking.nodes(part)
                if (ledger_id := self.paths.ledger_id(node.stat.path)) is not None
            ]

        return attempted(work())


@dataclass(frozen=True, slots=True)
class ListNames:
    """Says which ledgers topics, cursors and schemas name."""

    looking: Looking

    def __call__(self, part: TreePart) -> list[NameRow] | Failure:
        """Do it for one part of the tree."""

        async def work() -> list[NameRow]:
            return [
                NameRow(
                    found.place.ledger_id,
                    found.place.stamp.cluster,
                    found.user,
                    found.key,
                    found.name,
                    found.is_elsewhere,
                )
                async for node in self.looking.nodes(part)
                for found in references_in(node.stat.path, node.value)
            ]

        return attempted(work())


class Proof(NamedTuple):
    """What a second look at a ledger that seemed unused has shown."""

    ledger_id: int
    kind: Kind | None
    """None if it is gone."""
    words: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Looks once more at ledgers that seem unused: are they there, what of that they were made for?

    Each comes with the key and the name of what it was made for.
    """

    registry: Looking
    naming: tuple[Looking, ...]
    paths: LedgerPaths

    def __call__(self, suspects: tuple[tuple[int, str, str], ...]) -> list[Proof] | Failure:
        """Do it for some."""

        async def work() -> list[Proof]:
            proofs = []
            ledgers = TreePart(tuple(self.paths.ledger(one) for one, _, _ in suspects))
            there = {node.stat.path async for node in self.registry.nodes(ledgers)}
            owners = {(key, name) for _, key, name in suspects if key}
            named = {owner: await self._named_by(*owner) for owner in sorted(owners)}
            for ledger_id, key, name in suspects:
                if self.paths.ledger(ledger_id) not in there:
                    proofs.append(Proof(ledger_id, None, "it was removed meanwhile"))
                else:
                    proofs.append(_proof(ledger_id, name, named.get((key, name))))
            return proofs

        return attempted(work())

    async def _named_by(self, key: str, name: str) -> set[int] | None:
        """The ledgers that something and whatever is below it names now; None if it is gone."""
        found: set[int] | None = None
        for looking in self.naming:
            with suppress(InvalidPath, NotFound):
                async for node in looking.nodes(TreePart((), (f"{_ROOTS[key]}/{name}",))):
                    found = set() if found is None else found
                    found |= {
                        each.place.ledger_id for each in references_in(node.stat.path, node.value)
                    }
        return found


def _proof(ledger_id: int, name: str, named: set[int] | None) -> Proof:
    if not name:
        return Proof(
            ledger_id, Kind.ORPHAN, "nothing names it, and it does not say for what it was made"
        )
    if named is None:
        return Proof(ledger_id, Kind.ORPHAN, f"{name}, for which it was made, is gone")
    if ledger_id in named:
        return Proof(ledger_id, Kind.USED, f"{name} names it by now")
    return Proof(
        ledger_id, Kind.ORPHAN, f"{name}, for which it was made, names {len(named)} others"
    )
