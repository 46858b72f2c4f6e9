"""A target that is not there yet is not made for a copy that is going to be refused."""

from typing import TYPE_CHECKING

from anabranch.cli.metadata_places import is_there

if TYPE_CHECKING:
    from anabranch.metadata.transfer.copying import CopyOptions
    from anabranch.metadata.transfer.keeping import Keeping
    from anabranch.metadata.transfer.sources import RecordSource
    from anabranch.metadata.transfer.survey import OnProgress
    from anabranch.runtime import Runtime


async def look_before_making(
    runtime: "Runtime",
    source: "RecordSource",
    target_url: str,
    credentials: str,
    keeping: "Keeping",
    options: "CopyOptions",
    on_progress: "OnProgress",
) -> None:
    """Before a target is made: refuse what can be told by the source and the target's kind.

    A copy looks by itself, too, but has a target then.

    Raises:
        AnabranchError: as `Copy.run`, of what it would find before it writes anything.
    """
    from anabranch.metadata.transfer.checkpoint_file import CheckpointFile
    from anabranch.metadata.transfer.survey import survey

    if await is_there(target_url, runtime, credentials):
        return
    await CheckpointFile(runtime.disk, options.checkpoint).load()
    await source.moment()  # which makes what follows faster on some
    found = await survey(source, None, keeping, on_progress, digest=False)
    found.refuse_impossible()
    if not keeping.access and not options.drop_acls:
        found.refuse_acls()
