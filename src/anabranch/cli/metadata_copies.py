"""`anabranch metadata export|restore|copy|diff`: whole trees, between stores and files."""

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.metadata_copy_reports import (
    CopyProgress,
    digest_fields,
    print_report,
)
from anabranch.cli.metadata_new_targets import look_before_making
from anabranch.cli.metadata_places import (
    EXIT_REFUSED,
    CredentialsOption,
    DryRunOption,
    OutputOption,
    UrlOption,
    check_writable,
    opened,
    print_json_line,
    run,
    safe,
)
from anabranch.cli.verdicts import Output
from anabranch.errors import InputError, NotFound

if TYPE_CHECKING:
    from anabranch.metadata.store import MetadataStore, Record
    from anabranch.metadata.transfer.comparing import Difference
    from anabranch.metadata.transfer.copying import CopyOptions
    from anabranch.metadata.transfer.keeping import Keeping
    from anabranch.metadata.transfer.sources import RecordSource
    from anabranch.runtime import Runtime

_FILE = "file:"

FileArgument = Annotated[str, typer.Argument(help="The export file.")]
PrefixOption = Annotated[str, typer.Option(help="Only nodes at or below this path.")]
RateOption = Annotated[
    float | None, typer.Option(help="Nodes per second at most.", min=0.001, show_default=False)
]
BytesRateOption = Annotated[
    float | None,
    typer.Option(help="Bytes of paths and values per second at most.", min=1, show_default=False),
]
CheckpointOption = Annotated[
    str,
    typer.Option(
        help="File by which the same command goes on after an interruption.", show_default=False
    ),
]
VersionMapOption = Annotated[
    str,
    typer.Option(
        help="File for versions that the target cannot keep; default: version-map-TIME.tsv.",
        show_default=False,
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace nodes that the target has already.")
]
DropAclsOption = Annotated[
    bool, typer.Option("--drop-acls", help="Copy without access rights the target cannot hold.")
]
VerifyOption = Annotated[bool, typer.Option(help="Read the target back and compare.")]


def export(
    file: FileArgument,
    url: UrlOption,
    prefix: PrefixOption = "/",
    rate: RateOption = None,
    bytes_rate: BytesRateOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
    dry_run: DryRunOption = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Write the nodes of a store, as of one moment, into a file with checksums.

    ZooKeeper and Oxia must not be written to meanwhile; if they are, there is no file. ZooKeeper
    shows nobody which nodes are containers or have a time to live: they are written as nodes that
    stay.

    Exit code 0: written; 1: there are no such nodes, the store is in use, or it has changed; 2: it
    cannot be done.
    """
    from anabranch.metadata.paths import check_path
    from anabranch.metadata.transfer.export_file import write_export
    from anabranch.metadata.transfer.file_format import ExportHeader, ExportTotals, Totalling
    from anabranch.metadata.transfer.one_moment import OneMoment
    from anabranch.metadata.transfer.sources import shown
    from anabranch.metadata.transfer.survey import paced

    async def work(runtime: "Runtime") -> ExportTotals:
        header = ExportHeader(shown(url), check_path(prefix), runtime.clock.wall_ms())
        async with _source(url, runtime, credentials, prefix) as source:
            progress = CopyProgress()
            moment = OneMoment(source)
            await moment.begin()
            records = paced(moment.records(), runtime.clock, rate, bytes_rate, progress.tell)
            try:
                if dry_run:
                    totalling = Totalling()
                    async for record in records:
                        totalling.add(record)
                    return totalling.totals
                check = None if source.is_of_one_moment else moment.check
                return await write_export(
                    runtime.disk, file, header, records, overwrite=overwrite, check=check
                )
            finally:
                progress.end()

    totals = run(work)
    fields = {"file": file} | digest_fields(totals.digest)
    fields |= {"ephemeral_nodes": totals.ephemerals, "dry_run": dry_run}
    print_report(fields, output)


def restore(
    file: FileArgument,
    url: UrlOption,
    prefix: Annotated[
        str | None, typer.Option(help="Only nodes at or below this path.", show_default=False)
    ] = None,
    overwrite: OverwriteOption = False,
    drop_acls: DropAclsOption = False,
    rate: RateOption = None,
    bytes_rate: BytesRateOption = None,
    checkpoint: CheckpointOption = "",
    version_map: VersionMapOption = "",
    verify: VerifyOption = True,
    dry_run: DryRunOption = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Put the nodes of an export file into a store. Ephemeral ones are left out.

    The whole file is checked before anything is written.

    Exit code 0: all arrived; 1: refused, the store has such nodes; 2: it cannot be done; 3: an
    answer was lost.
    """
    options = _options(overwrite, drop_acls, rate, bytes_rate, checkpoint, version_map, verify)
    _copy(f"{_FILE}{file}", url, credentials, prefix, options, dry_run, output)


def copy(
    source: Annotated[str, typer.Argument(help="URL of a store, or file:NAME of an export.")],
    target: Annotated[str, typer.Argument(help="URL of a store.")],
    prefix: Annotated[
        str | None, typer.Option(help="Only nodes at or below this path.", show_default=False)
    ] = None,
    overwrite: OverwriteOption = False,
    drop_acls: DropAclsOption = False,
    rate: RateOption = None,
    bytes_rate: BytesRateOption = None,
    checkpoint: CheckpointOption = "",
    version_map: VersionMapOption = "",
    verify: VerifyOption = True,
    dry_run: DryRunOption = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Copy the nodes of one store into another. Ephemeral ones are left out.

    Nobody should write to the source meanwhile: if it changes, the copy is not believed. ZooKeeper
    shows nobody which nodes are containers or have a time to live: they become nodes that stay.

    Exit code 0: all arrived; 1: refused, the target has such nodes, or the source has changed; 2:
    it cannot be done; 3: an answer was lost.
    """
    options = _options(overwrite, drop_acls, rate, bytes_rate, checkpoint, version_map, verify)
    _copy(source, target, credentials, prefix, options, dry_run, output)


def _options(
    overwrite: bool,
    drop_acls: bool,
    rate: float | None,
    bytes_rate: float | None,
    checkpoint: str,
    version_map: str,
    verify: bool,
) -> "CopyOptions":
    from anabranch.metadata.transfer.copying import CopyOptions

    name = version_map or f"version-map-{datetime.now(UTC):%Y%m%d-%H%M%S}.tsv"
    return CopyOptions(
        overwrite, drop_acls, rate, bytes_rate, checkpoint, name, verify, tempfile.gettempdir()
    )


def _copy(
    source_url: str,
    target_url: str,
    credentials: str,
    prefix: str | None,
    options: "CopyOptions",
    dry_run: bool,
    output: Output,
) -> None:
    from anabranch.metadata.transfer.copying import Copy
    from anabranch.metadata.transfer.keeping import keeping_of
    from anabranch.metadata.transfer.sources import shown

    async def work(runtime: "Runtime") -> dict[str, Any]:
        keeping = keeping_of(target_url)
        await _check_version_map(runtime, options)
        progress = CopyProgress()
        try:
            async with _source(source_url, runtime, credentials, prefix) as source:
                if not dry_run:
                    await look_before_making(
                        runtime, source, target_url, credentials, keeping, options, progress.tell
                    )
                async with opened(
                    target_url, runtime, credentials, may_be_new=True, only_look=dry_run
                ) as target:
                    if dry_run:
                        return await _look(source, target, keeping, options, progress)
                    await check_writable(target)
                    report = await Copy(
                        runtime, source, target, shown(target_url), keeping, options, progress.tell
                    ).run()
        finally:
            progress.end()
        return digest_fields(report.digest) | {
            "ephemerals_left_out": report.ephemerals,
            "acls_dropped": report.acls_dropped,
            "overwritten": report.overwritten,
            "resumed_after": report.resumed_after,
            "versions_changed": report.versions_changed,
            "version_map": report.version_map,
            "times_kept": report.times_kept,
            "verified": report.verified,
        }

    print_report(run(work), output)


async def _look(
    source: "RecordSource",
    target: "MetadataStore",
    keeping: "Keeping",
    options: "CopyOptions",
    progress: CopyProgress,
) -> dict[str, Any]:
    """What a copy would do; refuses what it would refuse."""
    from anabranch.metadata.transfer.rights_last import HoldsRights
    from anabranch.metadata.transfer.survey import survey

    rights = target if isinstance(target, HoldsRights) else None
    found = await survey(
        source, target, keeping, progress.tell, rights=rights, may_be_there=options.overwrite
    )
    found.refuse_impossible()
    if not keeping.access and not options.drop_acls:
        found.refuse_acls()
    if not options.overwrite:
        found.refuse_conflicts()
    return digest_fields(found.digest) | {
        "ephemerals": found.ephemerals,
        "acls": found.acls,
        "occupied": found.occupied,
        "times_kept": keeping.times,
        "dry_run": True,
    }


async def _check_version_map(runtime: "Runtime", options: "CopyOptions") -> None:
    name = options.version_map
    goes_on = options.checkpoint and await runtime.disk.exists(options.checkpoint)
    if not goes_on and await runtime.disk.exists(name):
        raise InputError(f"{name} exists already: choose another name for --version-map")


def diff(
    left: Annotated[str, typer.Argument(help="URL of a store, or file:NAME: the source.")],
    right: Annotated[str, typer.Argument(help="URL of a store, or file:NAME: the copy.")],
    prefix: PrefixOption = "/",
    strict: Annotated[
        bool, typer.Option("--strict", help="Compare also numbers that the copy cannot keep.")
    ] = False,
    content_only: Annotated[
        bool, typer.Option("--content-only", help="Compare paths and values alone.")
    ] = False,
    times: Annotated[bool, typer.Option("--times", help="Compare times, too.")] = False,
    ephemerals: Annotated[
        bool, typer.Option("--ephemerals", help="Compare ephemeral nodes, too.")
    ] = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Print where two trees differ, in path order.

    Versions and sequence numbers that RIGHT cannot keep as LEFT has them count only if --strict.

    Exit code 0: nowhere; 1: somewhere; 2: it cannot be done.
    """
    from anabranch.metadata.transfer.comparing import compare
    from anabranch.metadata.transfer.keeping import EVERYTHING, keeping_of
    from anabranch.metadata.transfer.survey import paced

    async def work(runtime: "Runtime") -> int:
        count = 0
        keepings = (EVERYTHING, EVERYTHING)
        if not strict:
            keepings = (keeping_of(left), keeping_of(right))
        async with (
            _source(left, runtime, credentials, prefix) as ours,
            _source(right, runtime, credentials, prefix) as theirs,
        ):
            progress = CopyProgress()
            told = paced(ours.records(), runtime.clock, None, None, progress.tell, "compare")
            differences = compare(
                _or_nothing(told),
                _or_nothing(theirs.records()),
                keepings=keepings,
                content_only=content_only,
                times=times,
                ephemerals=ephemerals,
            )
            try:
                async for difference in differences:
                    count += 1
                    progress.end()  # both may be on one screen
                    _print_difference(difference, output)
            finally:
                progress.end()
        return count

    count = run(work)
    sys.stdout.flush()
    print(f"{count} differences", file=sys.stderr)
    raise typer.Exit(EXIT_REFUSED if count else 0)


async def _or_nothing(records: "AsyncIterator[Record]") -> "AsyncIterator[Record]":
    """The records of a source that may be empty: that is a difference like others."""
    try:
        async for record in records:
            yield record
    except NotFound:
        return


def _print_difference(difference: "Difference", output: Output) -> None:
    if output is Output.JSON:
        print_json_line(
            {
                "kind": difference.kind.value,
                "path": difference.path,
                "fields": list(difference.fields),
            }
        )
    else:
        fields = f"  ({', '.join(difference.fields)})" if difference.fields else ""
        print(f"{difference.kind.value:10}  {safe(difference.path)}{fields}")


@asynccontextmanager
async def _source(
    url: str, runtime: "Runtime", credentials: str, prefix: str | None
) -> "AsyncIterator[RecordSource]":
    from anabranch.metadata.transfer.export_file import ExportFile
    from anabranch.metadata.transfer.keeping import keeping_of
    from anabranch.metadata.transfer.ordering import Sorting
    from anabranch.metadata.transfer.sources import FileSource, StoreSource

    if url.startswith(_FILE):
        name = url.removeprefix(_FILE)
        if not name:
            raise InputError("an export needs a name: write 'file:NAME'")
        file = await ExportFile.open(runtime.disk, name)
        yield FileSource(file, prefix)
        return
    keeping = keeping_of(url)
    async with opened(url, runtime, credentials) as store:
        sorting = Sorting(runtime, tempfile.gettempdir())
        yield StoreSource(store, url, "/" if prefix is None else prefix, keeping, sorting)
