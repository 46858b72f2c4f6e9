"""A copy of a tree into a store: bounded in memory and pace, and able to go on after a crash.

Nodes go span by span, in path order. After each span a checkpoint says what is in the target; a
copy that resumes reads the source again from the start, proves by the digest that it is the same,
and looks at the nodes of the one span that may have been written without a checkpoint.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.errors import ConflictError, InputError
from anabranch.metadata.paths import ROOT, order_key
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.checkpoint import Checkpoint
from anabranch.metadata.transfer.checkpoint_file import CheckpointFile
from anabranch.metadata.transfer.digest import NO_NODES, Digest, Summing
from anabranch.metadata.transfer.few_collections import few_collections
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.one_moment import OneMoment
from anabranch.metadata.transfer.open_copies import Announcement, OpenCopy
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.present_nodes import PresentNodes
from anabranch.metadata.transfer.rights_last import HoldsRights, RestoresAlone, RightsLast
from anabranch.metadata.transfer.sources import RecordSource
from anabranch.metadata.transfer.survey import (
    PROGRESS_NODES,
    OnProgress,
    is_empty,
    no_progress,
    survey,
)
from anabranch.metadata.transfer.verifying import Expectation, first_difference
from anabranch.metadata.transfer.version_map import ChangedVersion, VersionMapWriter
from anabranch.runtime import Runtime


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How a copy is made."""

    overwrite: bool = False
    """Replace nodes that the target has; otherwise one is enough to refuse the copy."""
    drop_acls: bool = False
    """Go on without access rights where the target cannot hold them."""
    nodes_per_s: float | None = None
    bytes_per_s: float | None = None
    checkpoint: str = ""
    """File to go on by after an interruption; it is removed at the end. Empty: none."""
    version_map: str = "version-map.tsv"
    """File for versions that could not be kept; made only if there are any."""
    verify: bool = True
    """Read the target back and compare."""
    sorting_folder: str = "."
    """For records that do not come in path order."""
    span_nodes: int = limits.METADATA_COPY_SPAN_NODES


@dataclass(slots=True)
class CopyReport:
    """What a copy did."""

    digest: Digest = NO_NODES
    """Of everything that is in the target now because of it."""
    ephemerals: int = 0
    """Left out: those who own them make them anew."""
    acls_dropped: int = 0
    overwritten: int = 0
    resumed_after: int = 0
    """Nodes that an earlier run had copied."""
    versions_changed: int = 0
    version_map: str = ""
    """The file that tells of them."""
    times_kept: bool = True
    verified: bool = False


class Copy:
    """One copy. Use `run` once."""

    def __init__(
        self,
        runtime: Runtime,
        source: RecordSource,
        target: MetadataStore,
        target_name: str,
        keeping: Keeping,
        options: CopyOptions,
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._runtime = runtime
        self._source = source
        self._target = target
        self._keeping = keeping
        self._options = options
        self._on_progress = on_progress
        self._pace = Pace(options.nodes_per_s, options.bytes_per_s)
        self._report = CopyReport(times_kept=keeping.times)
        self._at = Checkpoint(
            source.identity,
            target_name,
            source.prefix,
            options.overwrite,
            options.drop_acls,
            target_was_empty=False,
            version_map=options.version_map,
        )
        self._checkpoint = CheckpointFile(runtime.disk, options.checkpoint)
        self._map = VersionMapWriter(runtime.disk, options.version_map)
        self._careful_nodes = 0
        """So many of the next nodes may be in the target although nobody noted it."""
        self._read = Summing()
        """Of all that was taken from the source, which is never more than one node ahead."""
        self._expected = Expectation(keeping)
        self._drops_access = options.drop_acls and not keeping.access
        self._moment = OneMoment(source, drops_access=self._drops_access)
        self._looked_at: int | None = None
        """How many nodes there are to copy, if they were looked at before."""
        self._last_path = ""
        self._changed: list[ChangedVersion] = []
        self._rights: RightsLast | None = None
        self._restore = target.restore
        if isinstance(target, HoldsRights):
            begun_ms = runtime.clock.wall_ms()
            told = OpenCopy(source.identity, source.prefix, begun_ms, options.checkpoint)
            self._rights = RightsLast(source, target, Announcement(target.open_notes, told))
            self._restore = target.restore_open
        self._present = PresentNodes(
            target,
            keeping,
            self._note_version,
            overwrite=options.overwrite,
            rights_later=self._rights is not None,
        )
        self._unkept: list[tuple[str, int]] = []
        self._ended = False
        self._has_root = False

    async def run(self) -> CopyReport:
        """Copy everything.

        Raises:
            ConflictError: if the target has such nodes, or the source is not what it was.
            InputError: if the target cannot hold what the source has, or the checkpoint is of
                another copy.
            Corruption: if the source is a file with damage; nothing was written.
            OutcomeUnknown: if an answer was lost; with a checkpoint the copy can go on.
        """
        try:
            with few_collections():
                await self._begin()
                return await self._copy()
        finally:
            await self._source.forget()

    async def _copy(self) -> CopyReport:
        records = self._remaining()
        try:
            while not self._ended:
                alone = self._at.target_was_empty and not self._options.overwrite
                if alone and isinstance(self._target, RestoresAlone):
                    self._restore = self._target.restore_alone
                await self._restore(self._span(records))
                await self._end_span()
            report = self._report
            if self._rights is not None:
                await self._rights.set_all(again=report.resumed_after > 0)
            report.digest = self._read.digest
            report.overwritten = self._present.overwritten
            await self._moment.check(report.digest, self._first_difference)
            if self._options.verify:
                try:
                    await self._verify()
                except InputError as error:
                    if self._rights is None or not self._rights.all_set:
                        raise
                    raise InputError(
                        "all nodes are in the target with their access rights, which may not let "
                        f"this copy read them back: {error}; copy without verifying and compare "
                        "as somebody who may read both"
                    ) from error
            await self._map.finish()
        except (Exception, asyncio.CancelledError) as error:
            if self._rights is not None:
                await self._rights.after_failure(error, self._options.checkpoint)
            raise
        finally:
            await records.aclose()
            await self._map.close()
        await self._checkpoint.store(None)
        return report

    # --- beginning ----------------------------------------------------------------------------

    async def _begin(self) -> None:
        await self._moment.begin()
        resumed = await self._checkpoint.load()
        if resumed is not None:
            resumed.check_same(self._at)
            self._at = resumed
            self._careful_nodes = resumed.uncertain_nodes
            self._report.resumed_after = resumed.digest.nodes
            self._map = VersionMapWriter(self._runtime.disk, resumed.version_map)
        if self._rights is not None:
            await self._rights.begin(goes_on=resumed is not None)
        empty = resumed is None and await is_empty(self._target, self._source.prefix)
        loses_acls = not self._keeping.access and not self._options.drop_acls
        occupiable = resumed is None and not empty and not self._options.overwrite
        refuses_some = resumed is None and self._keeping.refuses_some
        if (
            self._source.may_be_damaged
            or occupiable
            or refuses_some
            or (loses_acls and self._source.may_have_acls)
        ):
            looked_at = self._target if occupiable else None
            if self._keeping.refuses_some:
                self._source.read_twice()
            found = await survey(
                self._source,
                looked_at,
                self._keeping,
                self._on_progress,
                digest=False,
                rights=self._target if isinstance(self._target, HoldsRights) else None,
                may_be_there=self._options.overwrite,
            )
            self._looked_at = found.nodes
            found.refuse_impossible()
            if loses_acls:
                found.refuse_acls()
            found.refuse_conflicts()
            if not found.acls:
                self._source.read_access(False)
        if resumed is not None:
            if resumed.version_map_bytes:
                await self._map.resume(resumed.version_map_bytes, resumed.versions_changed)
            return
        self._at = replace(self._at, target_was_empty=empty, uncertain_nodes=self._span_nodes)
        await self._checkpoint.store(self._at)

    @property
    def _span_nodes(self) -> int:
        # A slow copy writes about once a second, not a span's worth after minutes.
        limit = self._options.nodes_per_s
        span = self._options.span_nodes
        return span if limit is None else max(1, min(span, int(limit)))

    # --- spans --------------------------------------------------------------------------------

    async def _remaining(self) -> AsyncGenerator[Record, None]:
        """What is to be copied still, after proof that the rest is what was copied before."""
        last = order_key(self._at.last_path)
        skipping = self._at.digest.nodes > 0
        async for found in self._moment.records():
            if found.session is not None:
                self._report.ephemerals += 1
                continue
            self._has_root = self._has_root or found.path == ROOT
            record = self._trimmed(found)
            if skipping and order_key(record.path) > last:
                self._check_same_source(self._read.digest)
                skipping = False
            exact = self._read.add(record)
            # By what was found, so that nothing done to it on the way goes unnoticed.
            self._expected.add(found, exact if record is found else None)
            if record.access and self._rights is not None:
                await self._rights.note(record)
            if not skipping:
                yield record
        if skipping:
            self._check_same_source(self._read.digest)

    def _trimmed(self, record: Record) -> Record:
        if self._keeping.access or not record.access:
            return record
        if record.access:
            self._report.acls_dropped += 1
        return record._replace(access=())

    def _check_same_source(self, skipped: Digest) -> None:
        if skipped != self._at.digest:
            raise ConflictError(
                f"{self._source.identity} has changed since this copy was interrupted: up to "
                f"{self._at.last_path} there were {self._at.digest.nodes} nodes, now there are "
                f"{skipped.nodes} or other ones; empty the target, remove the checkpoint "
                "and begin anew"
            )
        self._last_path = self._at.last_path

    async def _span(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        count = 0
        limited = self._pace.is_limited
        span_nodes = self._span_nodes if self._options.checkpoint or limited else None
        async for record in records:
            careful = self._options.overwrite or self._careful_nodes > 0
            if self._careful_nodes > 0:
                self._careful_nodes -= 1
            if not careful or await self._present.is_missing(record):
                if not self._keeping.keeps_version(record):
                    self._unkept.append((record.path, record.native_version))
                yield record
            self._last_path = record.path
            count += 1
            if count % PROGRESS_NODES == 0:
                self._on_progress("copy", self._read.digest, self._looked_at)
            if limited:
                now_s = self._runtime.clock.monotonic_s()
                delay_s = self._pace.take(now_s, len(record.value) + len(record.path))
                if delay_s > 0:
                    await asyncio.sleep(delay_s)
            if span_nodes is not None:
                if count >= span_nodes:
                    return
            elif len(self._unkept) >= limits.METADATA_COPY_SPAN_NODES:
                return
        self._ended = True

    async def _end_span(self) -> None:
        for start in range(0, len(self._unkept), limits.METADATA_COPY_READS_MAX):
            some = self._unkept[start : start + limits.METADATA_COPY_READS_MAX]
            nodes = await asyncio.gather(*(self._target.get(path) for path, _ in some))
            for (path, version), node in zip(some, nodes, strict=True):
                if node is None:
                    raise ConflictError(f"somebody deleted {path} from the target meanwhile")
                self._note_version(path, version, node.stat.version.native)
        await self._present.raise_counters()
        await self._map.add(self._changed)
        self._unkept.clear()
        self._changed.clear()
        self._report.versions_changed = self._map.count
        self._report.version_map = self._at.version_map if self._map.count else ""
        if self._options.checkpoint:
            self._at = replace(
                self._at,
                last_path=self._last_path,
                digest=self._read.digest,
                uncertain_nodes=self._span_nodes,
                version_map_bytes=self._map.size_bytes,
                versions_changed=self._map.count,
            )
            await self._checkpoint.store(self._at)

    def _note_version(self, path: str, source: int, target: int) -> None:
        if source != target:
            self._changed.append(ChangedVersion(path, source, target))

    # --- the end ------------------------------------------------------------------------------

    async def _verify(self) -> None:
        if self._at.target_was_empty and self._expected.whole:
            there = self._target.export(self._source.prefix)
            await self._expected.check(
                there, self._report.digest, self._on_progress, has_root=self._has_root
            )
        elif path := await self._first_difference():
            raise ConflictError(
                f"{path} in the target is not what was copied: somebody writes to one of the two"
            )
        self._report.verified = True

    async def _first_difference(self) -> str | None:
        sorting = Sorting(self._runtime, self._options.sorting_folder)
        there = self._target.export(self._source.prefix)
        return await first_difference(
            self._source,
            sorting.in_path_order(there, self._keeping),
            self._keeping,
            overwritten=self._options.overwrite,
            drops_access=self._drops_access,
            was_empty=self._at.target_was_empty,
        )
