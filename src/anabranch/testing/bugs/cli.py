"""Planted bugs of `anabranch.cli`, which is above this layer and therefore not imported."""

import asyncio
import importlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch.testing.planted import original, planted


@planted("errors_keep_their_trace", target="anabranch.cli.main:run")
def errors_keep_their_trace() -> None:
    """Whoever makes a mistake is shown where in the program it was noticed."""
    importlib.import_module("anabranch.cli.main").app()


@planted(
    "moved_metadata_are_believed",
    target="anabranch.migrations.engine.under_way:operation_under_way",
)
async def moved_metadata_are_believed(store: Any) -> str:
    """What a store does not name is unused, also while another store replaces it."""
    del store
    return ""


@planted("nobody_is_waited_for", target="anabranch.cli.reach:require_listener")
def nobody_is_waited_for(url: str) -> None:
    """A server that is not there is tried again and again."""
    del url


@planted("json_leaves_out_the_key", target="anabranch.cli.message_summaries:message_as_json")
def json_leaves_out_the_key(message: Any) -> str:
    """A message is printed for machines without its key."""
    document = json.loads(original("json_leaves_out_the_key")(message))
    return json.dumps({**document, "key": None}, ensure_ascii=False)


@planted("progress_stays_on_the_screen", target="anabranch.cli.progress:Progress.end")
def progress_stays_on_the_screen(self: Any) -> None:
    """The line that shows how far work is stays behind when it is done."""
    del self


@planted(
    "catalog_is_not_followed",
    target="anabranch.cli.storage_cluster_views:StorageClusterViews.__call__",
)
async def catalog_is_not_followed(self: Any, stamp: object) -> object:
    """Every ledger is looked for in the store that the command was given."""
    del stamp
    return next(iter(self._views.values()))


@planted("dry_runs_delete", target="anabranch.cli.admin_places:administer")
def dry_runs_delete(web_url: str, access: str, work: Any) -> Any:
    """What only was to be said is done."""
    cells = dict(zip(work.__code__.co_freevars, work.__closure__ or (), strict=True))
    if "dry_run" in cells:
        cells["dry_run"].cell_contents = False
    return original("dry_runs_delete")(web_url, access, work)


@planted("policies_are_not_offered", target="anabranch.cli.namespaces:_offered")
def policies_are_not_offered() -> list[str]:
    """A shell that asks for the names of policies hears none."""
    return []


@planted("commands_keep_notes_to_themselves", target="anabranch.cli.metadata_places:tell_notes")
def commands_keep_notes_to_themselves(error: BaseException) -> None:
    """Who meets a bug is not told what it left half done."""
    del error


@planted("reports_leave_out_losses", target="anabranch.cli.metadata_copy_reports:for_people")
def reports_leave_out_losses(fields: dict[str, Any]) -> dict[str, Any]:
    """A copy that lost times, or was not verified, says nothing of it."""
    told: dict[str, Any] = original("reports_leave_out_losses")(fields)
    return {name: value for name, value in told.items() if fields[name]}


@planted("ctrl_c_aborts_the_operation", target="anabranch.cli.admin_places:administer")
def ctrl_c_aborts_the_operation(web_url: str, access: str, work: Any) -> Any:
    """Whoever ends a command that shows or starts an operation ends the operation."""

    async def ending(admin: Any) -> Any:
        try:
            return await work(admin)
        except asyncio.CancelledError:
            await admin.metadata_migration.ask("abort")
            raise

    return original("ctrl_c_aborts_the_operation")(web_url, access, ending)


@planted("targets_are_made_first", target="anabranch.cli.metadata_places:is_there")
async def targets_are_made_first(url: str, runtime: Any, credentials: str) -> bool:
    """An empty store is left behind by a copy that was refused."""
    del url, runtime, credentials
    return True


@planted("features_are_not_asked_for", target="anabranch.metadata.features:refuse_unknown_features")
async def features_are_not_asked_for(store: Any, build: Any = None) -> None:
    """Commands look into data, and remove ledgers, whatever it is written for."""
    del store, build


@planted("damage_is_said_of_the_copy", target="anabranch.cli.data_folders:opened_copy")
@asynccontextmanager
async def damage_is_said_of_the_copy(folder: Path, runtime: Any) -> AsyncIterator[Any]:
    """An error names a file that nobody knows and that is gone."""
    opened = importlib.import_module("anabranch.cli.metadata_places").opened
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(folder, Path(place) / "metadata")
        async with opened(f"embedded:{copy}", runtime, "") as metadata:
            yield metadata
