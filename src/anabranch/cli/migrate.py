"""`anabranch migrate metadata`: replace the metadata store of a cluster while it works."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from anabranch.cli.admin_places import Noun, Server
from anabranch.cli.metadata_places import EXIT_REFUSED, DryRunOption, print_json, safe

if TYPE_CHECKING:
    from anabranch.client.admin import AdminClient

app = typer.Typer(
    help="Replace what a cluster stands on while it works.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
metadata = Noun(
    "Replace the metadata store of a cluster while it works. Experimental: nobody has used it in "
    "earnest, so not for a cluster that is needed. Off unless the setting "
    "metadata_migration_targets names a target. After finalize, restart the servers, best with the "
    "new metadata_url."
)
app.add_typer(metadata, name="metadata")
T = TypeVar("T")


class StoreName(StrEnum):
    """What can be replaced."""

    METADATA = "metadata"
    CONFIGURATION = "configuration"


_METADATA: Final = StoreName.METADATA
_ENDS: Final = ("finalized", "rolled back", "aborted", "failed")
_LOCAL: Final = "local"
_CLEAR: Final = "\x1b[H\x1b[J"
_GOES_ON: Final = "the operation goes on: `anabranch migrate metadata status` says how it is"
_UNKNOWN: Final = (
    "whether the server had it is not known, and what it had goes on: "
    "`anabranch migrate metadata status` says how it is"
)
_Target = Annotated[
    str, typer.Argument(help="URL of the store that replaces the present one; see the settings.")
]
_Rate = Annotated[
    float | None,
    typer.Option(
        "--nodes-per-s",
        help="Copy and compare no faster than this; without it, most of the time is spent resting.",
        min=1,
        show_default=False,
    ),
]
_DropAcls = Annotated[
    bool, typer.Option("--drop-acls", help="Leave out access rights that the target cannot hold.")
]
_Bulk = Annotated[
    str,
    typer.Option(
        "--bulk", help="Who compares everything: local, or spark if the server has that setting."
    ),
]
_ForeignRisk = Annotated[
    bool,
    typer.Option(
        "--accept-foreign-risk",
        help="Lead brokers of Pulsar, too, although they write past their own freeze.",
    ),
]
_Store = Annotated[
    StoreName,
    typer.Option(help="Which store; `configuration` where the servers have one of its own."),
]
_Why = Annotated[str, typer.Option("--why", help="A sentence for the audit trail.")]


async def _or_interrupted(work: Awaitable[T], words: str) -> T:
    """Have Ctrl-C end the command alone, and say what becomes of the operation."""
    try:
        return await work
    except asyncio.CancelledError as error:
        error.add_note(words)
        raise


def _request(server: Server, ask: "Callable[[AdminClient], Awaitable[T]]") -> T:
    """Have a server change something."""
    return server.ask(lambda admin: _or_interrupted(ask(admin), _UNKNOWN))


@app.callback()
def migrate() -> None:
    """Replace what a cluster stands on while it works."""


def _parameters(
    target: str, nodes_per_s: float | None, drop_acls: bool, bulk: str, accept_foreign_risk: bool
) -> dict[str, Any]:
    given: dict[str, Any] = {"target": target}
    if bulk != _LOCAL:
        given["bulk"] = bulk
    if nodes_per_s is not None:
        given["nodes_per_s"] = nodes_per_s
    if drop_acls:
        given["drop_acls"] = True
    if accept_foreign_risk:
        given["accept_foreign_risk"] = True
    return given


@metadata.command()
def plan(
    server: Server,
    target: _Target,
    nodes_per_s: _Rate = None,
    drop_acls: _DropAcls = False,
    bulk: _Bulk = _LOCAL,
    accept_foreign_risk: _ForeignRisk = False,
    store: _Store = _METADATA,
) -> None:
    """Print what a start would do and what stands against it; nothing is changed."""
    _plan(server, _parameters(target, nodes_per_s, drop_acls, bulk, accept_foreign_risk), store)


def _plan(server: Server, parameters: dict[str, Any], store: StoreName) -> None:
    found = server.ask(lambda admin: admin.metadata_migration.plan(parameters, store))
    if server.as_json:
        print_json(found)
    else:
        for name, value in {**found["parameters"], **found["figures"]}.items():
            print(f"{safe(name):12} {safe(str(value))}")
        for note in found["notes"]:
            print(f"note         {safe(note)}")
        for blocker in found["blockers"]:
            print(f"blocked by   {safe(blocker['who'])}: {safe(blocker['why'])}")
    if found["blockers"]:
        raise typer.Exit(EXIT_REFUSED)


@metadata.command()
def start(
    server: Server,
    target: _Target,
    nodes_per_s: _Rate = None,
    drop_acls: _DropAcls = False,
    bulk: _Bulk = _LOCAL,
    accept_foreign_risk: _ForeignRisk = False,
    store: _Store = _METADATA,
    dry_run: DryRunOption = False,
) -> None:
    """Begin to replace the store; it goes on by itself until it rests at `switched`."""
    parameters = _parameters(target, nodes_per_s, drop_acls, bulk, accept_foreign_risk)
    if dry_run:
        _plan(server, parameters, store)
        return
    found = _request(server, lambda admin: admin.metadata_migration.start(parameters, store))
    server.done(f"started attempt {found['attempt']}", **found)


@metadata.command()
def status(server: Server, store: _Store = _METADATA) -> None:
    """Print how the newest attempt is."""
    found = server.ask(lambda admin: admin.metadata_migration.status(store))
    if server.as_json:
        print_json({name: value for name, value in found.items() if name != "lines"})
        return
    for line in found["lines"]:
        print(safe(line))


@metadata.command()
def watch(
    server: Server,
    interval_s: Annotated[
        float, typer.Option("--interval-s", help="Between two looks.", min=0.1)
    ] = 1.0,
    store: _Store = _METADATA,
) -> None:
    """Show how it goes until it ends or rests at `switched`; Ctrl-C ends the view alone.

    The exit code is 1 if it met an error, such as an attempt or a rollback that failed.
    """

    async def work(admin: "AdminClient") -> dict[str, Any]:
        before: list[str] = []
        while True:
            found = await admin.metadata_migration.status(store)
            if found["lines"] != before:
                before = found["lines"]
                _show(before)
            if found["phase"] in (None, "switched", *_ENDS):
                return found
            await asyncio.sleep(interval_s)

    found = server.ask(lambda admin: _or_interrupted(work(admin), _GOES_ON))
    if server.as_json:
        print_json({name: value for name, value in found.items() if name != "lines"})
    if found.get("error"):
        raise typer.Exit(EXIT_REFUSED)


def _show(lines: list[str]) -> None:
    """On a terminal one picture after the other, else one after the other below."""
    if sys.stderr.isatty():
        sys.stderr.write(_CLEAR)
    for line in lines:
        print(safe(line), file=sys.stderr)


def _ask(
    server: Server, verb: str, why: str, done: str, *, store: StoreName, dry_run: bool
) -> None:
    if dry_run:
        found = server.ask(lambda admin: admin.metadata_migration.status(store))
        if verb not in found["verbs"]:
            server.done(f"would be refused: {found['phase']} takes {found['verbs']}", dry_run=True)
            raise typer.Exit(EXIT_REFUSED)
        server.done(f"would be {done}", dry_run=True)
        return
    found = _request(server, lambda admin: admin.metadata_migration.ask(verb, why, store))
    server.done(f"attempt {found['attempt']} is {found['phase']}: {done}", **found)


@metadata.command()
def pause(
    server: Server,
    why: _Why = "",
    store: _Store = _METADATA,
    dry_run: DryRunOption = False,
) -> None:
    """Stop the copy for a while; nobody waits meanwhile."""
    _ask(server, "pause", why, "paused", store=store, dry_run=dry_run)


@metadata.command()
def resume(
    server: Server,
    why: _Why = "",
    store: _Store = _METADATA,
    dry_run: DryRunOption = False,
) -> None:
    """Go on after a pause."""
    _ask(server, "resume", why, "resumed", store=store, dry_run=dry_run)


@metadata.command()
def abort(
    server: Server,
    why: _Why = "",
    store: _Store = _METADATA,
    dry_run: DryRunOption = False,
) -> None:
    """Give up before the switch, or a rollback while it compares: all stay where they are."""
    _ask(server, "abort", why, "aborted", store=store, dry_run=dry_run)


@metadata.command()
def rollback(
    server: Server,
    why: _Why = "",
    store: _Store = _METADATA,
    dry_run: DryRunOption = False,
) -> None:
    """Go back to the source after the switch, with all that was written since."""
    _ask(server, "rollback", why, "rolled back", store=store, dry_run=dry_run)


@metadata.command()
def finalize(
    server: Server,
    why: _Why = "",
    store: _Store = _METADATA,
    dry_run: DryRunOption = False,
) -> None:
    """Stay with the target: nothing is copied back any more, and there is no way back.

    Then set metadata_url (with `--store configuration`: configuration_metadata_url) to the new
    store and restart every server; one that still has the old
    address finds the new store by metadata_migration_targets. Nothing is deleted in the old store,
    and whoever does not take part can still write to it.
    """
    _ask(server, "finalize", why, "finalized", store=store, dry_run=dry_run)
