"""Makes sure that the metadata that are looked at are those that name the ledgers of bookies.

Bookies may register in another store than the one in which topics name ledgers. Whoever looked
there for names would find none, and take every ledger for unused.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.errors import ConflictError, NotFound

if TYPE_CHECKING:
    from anabranch.ledgers.bookkeeper.inspection import LedgersOnBookies
    from anabranch.metadata.store import MetadataStore

_DOUBT: Final = (
    "no server of ours has noted whose these bookies are, and they register in another store than "
    "the metadata that were given: names and ids of ledgers fit, but another cluster can have the "
    "same"
)


class Naming(NamedTuple):
    """Where ledgers are named, as far as that can be known."""

    stores: "list[MetadataStore]"
    doubt: str = ""
    """Why these may still be the metadata of others; empty if they cannot."""


async def naming_stores(
    ledgers: "LedgersOnBookies", registry: "MetadataStore", metadata: "MetadataStore", root: str
) -> Naming:
    """Where ledgers below a root, on bookies of a registry, are named: the metadata, if believed.

    Where no server of ours has noted whose they are, a ledger must say that it was made for
    something that names it there, and none may say otherwise. The same id alone proves nothing:
    every cluster counts from the same number. Then the registry may name ledgers as well.

    Raises:
        ConflictError: if they belong to others, or nothing says whose they are.
    """
    from anabranch.server.cluster_tie import cluster_of, owner_of_bookies

    owner = await owner_of_bookies(registry, root)
    if owner is None:
        if not await _names_one(ledgers, metadata):
            raise ConflictError(
                "the metadata store names no ledger of these bookies that was made for what names "
                "it, and nothing says whose they are: give the metadata store of the servers with "
                "--metadata"
            )
        if metadata is registry:
            return Naming([metadata])
        return Naming([metadata, registry], _DOUBT)
    present = await cluster_of(metadata)
    if present != owner:
        raise ConflictError(
            f"the ledgers of these bookies below {root} belong to cluster {owner}, and these "
            f"metadata to {f'cluster {present}' if present else 'none'}: what names ledgers is "
            "not known; give the metadata store of the servers with --metadata"
        )
    return Naming([metadata])


async def _names_one(ledgers: "LedgersOnBookies", metadata: "MetadataStore") -> bool:
    """Whether a ledger was made for what names it.

    Raises:
        ConflictError: if one was made for this, and another one not for what names it.
    """
    from anabranch.managed_ledger.references import all_references

    is_one, stranger = False, ""
    async for found in all_references(metadata):
        ledger_id = found.place.ledger_id
        try:
            known = await ledgers.describe(ledger_id)
        except NotFound:
            continue
        made_for = known.custom_metadata.get(found.key)
        if made_for == found.name.encode():
            is_one = True
        elif made_for is not None:
            said = made_for.decode(errors="backslashreplace")
            stranger = (
                f"ledger {ledger_id} of these bookies was made for {said}, and the metadata store "
                f"has one of that number for {found.user}: they do not belong together; give the "
                "metadata store of the servers with --metadata"
            )
    if is_one and stranger:
        raise ConflictError(stranger)
    return is_one
