"""Keeps a server that takes no part in replacing its metadata store off one that is replaced."""

from anabranch.errors import ConfigError
from anabranch.metadata.announced import journal_path, read_announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.postures import LEFT_FOR_GOOD, is_over
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.freeze_copy.steps import FreezeCopy


async def refuse_replaced(store: MetadataStore, url: str, setting: str = "metadata_url") -> None:
    """Make sure that a store, which a setting names, was not left, and that nobody is about to.

    Raises:
        ConfigError: naming the setting that is to be changed.
        FormatError: if the journal of a replacement is none that this build knows.
    """
    node = await store.get(journal_path(FreezeCopy.kind))
    if node is None:
        return
    announced = read_announced(node.value)
    target = shown(announced.parameters.get("target", ""))
    if announced.phase == LEFT_FOR_GOOD:
        raise ConfigError(
            f"{shown(url)} was replaced by {target}, and what it has is old: set {setting} to "
            "that one"
        )
    if not is_over(announced):
        raise ConfigError(
            f"{shown(url)} is being replaced by {target} ({announced.phase}): name that one in "
            "metadata_migration_targets, so that this server takes part, or wait for the end"
        )
