"""The reports of all participants of a kind of operation, as the store has them."""

from anabranch.metadata.announced import Report, participants_path, read_report
from anabranch.metadata.store import MetadataStore


async def read_reports(store: MetadataStore, kind: str) -> list[Report]:
    """What every participant says whose session lasts, in order of their ids.

    Raises:
        FormatError: if one of them is of a version that this build does not know.
    """
    await store.sync()
    folder = participants_path(kind)
    found = []
    for name in await store.children(folder):
        node = await store.get(f"{folder}/{name}")
        if node is not None:
            found.append(read_report(node.value))
    return found
