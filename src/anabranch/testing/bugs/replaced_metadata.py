"""Planted bugs of replacing the metadata store under those who use it."""

import asyncio
from collections.abc import Iterable
from typing import Any

from anabranch.errors import Unreachable
from anabranch.metadata.announced import Announced
from anabranch.metadata.store import MetadataStore, Node, Operation, Stat, Version
from anabranch.metadata.switchable.gate import Gate
from anabranch.metadata.switchable.own_nodes import OwnNodes
from anabranch.metadata.switchable.part import SwitchPart
from anabranch.metadata.switchable.participation import Participation
from anabranch.metadata.switchable.writing import GatedWrites
from anabranch.migrations.freeze_copy.converging import Converging
from anabranch.migrations.freeze_copy.tail import Tail
from anabranch.testing.planted import original, planted

_LOOK_S = 0.01


@planted("gate_looks_then_counts", target="anabranch.metadata.switchable.gate:Gate.pass_in")
async def gate_looks_then_counts(self: Gate) -> None:
    """A write looks at the gate, and is counted only a moment later."""
    if self.closed:
        plain: Any = original("gate_looks_then_counts")
        await plain(self)
        return
    await asyncio.sleep(_LOOK_S)
    self.under_way += 1


@planted("held_writes_are_refused", target="anabranch.metadata.switchable.gate:Gate.pass_in")
async def held_writes_are_refused(self: Gate) -> None:
    """A write fails at a closed gate, instead of waiting there."""
    if not self.enter():
        raise Unreachable("the metadata store is being replaced")


@planted(
    "conditional_writes_pass_the_gate",
    target="anabranch.metadata.switchable.writing:GatedWrites._write",
)
async def conditional_writes_pass_the_gate(self: GatedWrites, operation: Operation) -> Stat | None:
    """What caches write goes to the store whatever happens to it."""
    if isinstance(operation.expected, Version):
        return await self._write_once(operation)
    plain: Any = original("conditional_writes_pass_the_gate")
    found: Stat | None = await plain(self, operation)
    return found


@planted(
    "losers_make_nodes_anew",
    target="anabranch.metadata.switchable.own_nodes:OwnNodes.present",
)
async def losers_make_nodes_anew(self: OwnNodes, store: MetadataStore) -> list[Node]:
    """Whoever comes first makes every ephemeral node anew, also those of others."""
    return [node async for node in store.scan("/") if node.stat.ephemeral]


@planted(
    "failed_attempt_keeps_its_target",
    target="anabranch.metadata.switchable.part:SwitchPart._let_go",
)
async def failed_attempt_keeps_its_target(self: SwitchPart) -> None:
    """The connection to a target outlives the attempt it was for."""


@planted(
    "failure_leaves_some_on_the_target",
    target="anabranch.metadata.switchable.part:SwitchPart.enter",
)
async def failure_leaves_some_on_the_target(self: SwitchPart, announced: Announced) -> None:
    """A process that has turned to the target does not turn back when the attempt fails."""
    if announced.phase in ("failing", "failed", "aborting", "aborted"):
        self._store.gate.open()
        return
    plain: Any = original("failure_leaves_some_on_the_target")
    await plain(self, announced)


@planted(
    "late_answers_are_believed",
    target="anabranch.metadata.switchable.participation:Participation.is_sure",
)
def late_answers_are_believed(self: Participation, session: int) -> bool:
    """A process that was not heard of acknowledges what it wrote to the store it knows."""
    return True


@planted(
    "counters_are_not_carried",
    target="anabranch.migrations.freeze_copy.tail:with_parents",
)
def counters_are_not_carried(paths: Iterable[str]) -> dict[str, None]:
    """Nobody looks at the nodes whose counters rose."""
    return dict.fromkeys(paths)


@planted("copy_is_not_verified", target="anabranch.migrations.freeze_copy.tail:Tail.verify")
async def copy_is_not_verified(self: Tail) -> None:
    """Nobody compares the two stores."""
    self._touched = {}
    self.compared = True


@planted("journal_is_copied", target="anabranch.migrations.freeze_copy.tail:stays_behind")
def journal_is_copied(path: str) -> bool:
    """The documents of the operation go along."""
    return False


@planted(
    "deletes_are_not_followed",
    target="anabranch.migrations.freeze_copy.converging:Converging._remove",
)
async def deletes_are_not_followed(self: Converging, path: str) -> None:
    """What was deleted while a store was copied comes back."""
    if await self._source.exists(path):
        plain: Any = original("deletes_are_not_followed")
        await plain(self, path)


@planted("left_store_is_not_sealed", target="anabranch.metadata.switchable.seal:seal")
async def left_store_is_not_sealed(store: MetadataStore, attempt: str, target: str) -> None:
    """A store that was left looks as if it were in use."""
