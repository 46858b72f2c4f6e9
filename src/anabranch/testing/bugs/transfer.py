"""Planted bugs of copies between metadata stores, and of export files."""

from collections.abc import AsyncIterator
from typing import Any

from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.copying import Copy
from anabranch.metadata.transfer.digest import NO_NODES, Digest
from anabranch.metadata.transfer.one_moment import OneMoment
from anabranch.metadata.transfer.present_nodes import PresentNodes
from anabranch.metadata.transfer.rights_last import RightsLast
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.transfer.survey import Survey
from anabranch.testing.planted import original, planted


@planted("copy_loses_sequences", target="anabranch.metadata.transfer.copying:Copy._trimmed")
def copy_loses_sequences(self: Copy, record: Record) -> Record:
    """The counters of sequential nodes are not carried."""
    kept: Record = original("copy_loses_sequences")(self, record)
    return kept._replace(next_sequence=0)


@planted("copy_loses_versions", target="anabranch.metadata.transfer.copying:Copy._trimmed")
def copy_loses_versions(self: Copy, record: Record) -> Record:
    """Every node begins with version 0 again, and nobody notes it."""
    kept: Record = original("copy_loses_versions")(self, record)
    return kept._replace(native_version=0)


@planted("copy_changes_values", target="anabranch.metadata.transfer.copying:Copy._trimmed")
def copy_changes_values(self: Copy, record: Record) -> Record:
    """Values lose white space at their end, as if they were lines."""
    kept: Record = original("copy_changes_values")(self, record)
    return kept._replace(value=kept.value.rstrip(b"\xff"))


@planted("copy_takes_ephemerals", target="anabranch.metadata.transfer.sources:StoreSource.records")
async def copy_takes_ephemerals(self: StoreSource) -> AsyncIterator[Record]:
    """Nodes of sessions are copied as if they were to stay."""
    async for record in original("copy_takes_ephemerals")(self):
        yield record._replace(session=None)


@planted("copy_looks_too_late", target="anabranch.metadata.transfer.survey:Survey.refuse_conflicts")
def copy_looks_too_late(self: Survey) -> None:
    """A copy into an occupied place begins, and stops in the middle."""


@planted(
    "copy_asks_too_late_what_fits",
    target="anabranch.metadata.transfer.survey:Survey.refuse_impossible",
)
def copy_asks_too_late_what_fits(self: Survey) -> None:
    """A copy begins although the target cannot hold all of it."""


@planted(
    "resume_trusts_the_checkpoint",
    target="anabranch.metadata.transfer.copying:Copy._check_same_source",
)
def resume_trusts_the_checkpoint(self: Copy, skipped: Digest) -> None:
    """A copy goes on although the source is not the same any more."""
    self._last_path = self._at.last_path


@planted("resume_forgets_the_open_span", target="anabranch.metadata.transfer.copying:Copy._begin")
async def resume_forgets_the_open_span(self: Copy) -> None:
    """Nodes written after the last checkpoint are in the way of a copy that resumes."""
    await original("resume_forgets_the_open_span")(self)
    self._careful_nodes = 0


@planted("block_is_not_checked", target="anabranch.metadata.transfer.file_format:_checksum")
def block_is_not_checked(offset: int, kind: int, payload: bytes) -> int:
    """Every block of an export file passes for intact."""
    del offset, kind, payload
    return 0


@planted("end_is_not_checked", target="anabranch.metadata.transfer.file_format:check_end")
def end_is_not_checked(file: str, offset: int, payload: bytes, found: Any) -> None:
    """Nobody compares an export file with what its end says of it."""


@planted("file_loses_acls", target="anabranch.metadata.transfer.file_format:encode_record")
def file_loses_acls(record: Record) -> bytes:
    """Access rights are not written to export files."""
    encoded: bytes = original("file_loses_acls")(record._replace(access=()))
    return encoded


@planted("acls_are_dropped", target="anabranch.metadata.transfer.survey:Survey.refuse_acls")
def acls_are_dropped(self: Survey) -> None:
    """A copy loses access rights without being told to."""


@planted("digest_of_the_last", target="anabranch.metadata.transfer.digest:Digest.plus")
def digest_of_the_last(self: Digest, record: Record) -> Digest:
    """A digest covers one node."""
    newest: Digest = original("digest_of_the_last")(NO_NODES, record)
    return newest._replace(nodes=self.nodes + 1, value_bytes=self.value_bytes + newest.value_bytes)


@planted("versions_are_not_noted", target="anabranch.metadata.transfer.copying:Copy._note_version")
def versions_are_not_noted(self: Copy, path: str, source: int, target: int) -> None:
    """Nobody can tell which versions a copy could not keep."""


@planted("urls_are_shown_whole", target="anabranch.metadata.transfer.sources:shown")
def urls_are_shown_whole(url: str) -> str:
    """Secrets in a store's URL are written into files and shown."""
    return url


@planted(
    "copy_trusts_a_moving_source", target="anabranch.metadata.transfer.one_moment:OneMoment.check"
)
async def copy_trusts_a_moving_source(
    self: OneMoment, read: Digest, first_changed: Any = None
) -> None:
    """Nobody asks whether the source was written to while it was read."""


@planted(
    "second_reading_skips_access",
    target="anabranch.metadata.transfer.sources:StoreSource.read_access",
)
def second_reading_skips_access(self: StoreSource, wanted: bool) -> None:
    """Access rights that were not read once are never read again."""
    original("second_reading_skips_access")(self, False)


@planted(
    "resume_leaves_counters_behind",
    target="anabranch.metadata.transfer.present_nodes:PresentNodes.raise_counters",
)
async def resume_leaves_counters_behind(self: PresentNodes) -> None:
    """A counter that was too low when the copy was interrupted stays so."""


@planted("diff_knows_no_rule", target="anabranch.metadata.transfer.comparing:_numbers")
def diff_knows_no_rule(left: Record, right: Record, *keepings: Any) -> list[str]:
    """What a store cannot keep counts as a difference of its copy."""
    del keepings
    same = (left.native_version, left.next_sequence) == (right.native_version, right.next_sequence)
    return [] if same else ["version"]


@planted("rights_come_with_each_span", target="anabranch.metadata.transfer.copying:Copy._end_span")
async def rights_come_with_each_span(self: Copy) -> None:
    """Nodes are closed although some that belong below them come later."""
    await original("rights_come_with_each_span")(self)
    if self._rights is not None:
        await self._rights.set_all(again=True)


@planted("rights_are_not_noted", target="anabranch.metadata.transfer.rights_last:RightsLast.note")
async def rights_are_not_noted(self: RightsLast, record: Record) -> None:
    """A copy does not notice that there are rights, and leaves all open."""


@planted(
    "hidden_passwords_are_restored",
    target="anabranch.metadata.access_rights:hides_password",
)
def hidden_passwords_are_restored(right: AccessRight) -> bool:
    """Rights without the digest of their password are taken for whole ones."""
    return False


@planted(
    "second_look_is_the_first",
    target="anabranch.metadata.transfer.sources:StoreSource.records",
)
def second_look_is_the_first(self: StoreSource) -> AsyncIterator[Record]:
    """What was kept for the copy is taken for what the source is like afterwards."""
    if self._sorted is not None:
        return self._sorted.records()
    records: AsyncIterator[Record] = original("second_look_is_the_first")(self)
    return records
