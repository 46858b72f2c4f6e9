"""Taking over a managed ledger: recover its last ledger, begin a new one, publish the chain.

The order is what makes it safe. Recovering fences the previous owner's writer; publishing is
conditional on the version that was read, so of two takers one fails; ledgers are deleted only
after no published chain names them. A crash in between leaves at most a ledger that nobody names.
"""

from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.errors import AnabranchError, CatalogChanged, Fenced, NotFound, StorageError
from anabranch.ledgers.clusters import CreatedLedger, StorageClusters
from anabranch.ledgers.stamps import LedgerPlace
from anabranch.ledgers.store import LedgerQuorums, LedgerReader, LedgerWriter
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import ChainDocument, decode_chain, encode_chain
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS, OwnedNode
from anabranch.metadata.store import ABSENT
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")


@dataclass(slots=True)
class OpenedChain:
    """A managed ledger right after it was taken over."""

    name: str
    node: OwnedNode
    document: ChainDocument
    chain: Chain
    writer: LedgerWriter | None
    """None if the managed ledger was terminated."""


async def open_chain(
    name: str, env: Environment, *, create: bool, quorums: LedgerQuorums | None = None
) -> OpenedChain:
    """Take over a managed ledger.

    Raises:
        NotFound: if there is none and `create` is false.
        Fenced: if another owner took it over at the same time.
    """
    taken: CreatedLedger | None = None
    newest: int | None = None
    for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
        node, document = await _read(name, env, create=create)
        if newest is not None and newest != _newest_id(document):
            break
        newest = _newest_id(document)
        spans = await _recover(name, document, env)
        if document.terminated is not None:
            if taken is not None:
                await discard_ledger(env.ledgers, taken.place)
            spans = spans or (LedgerSpan(document.terminated.ledger_id, closed_ms=1),)
            return OpenedChain(name, node, document, Chain(spans, None), None)
        taken = taken or await create_ledger(name, env, above=newest, quorums=quorums)
        kept = tuple(span for span in spans if span.entries)
        document = replace(document, spans=(*kept, new_span(taken)))
        try:
            await node.write(encode_chain(document), taken.guard)
        except CatalogChanged:
            await start_over(env.ledgers, taken)
            taken = None
            continue
        except Fenced:
            # The previous owner may still trim and set properties, but it cannot go on to another
            # ledger. If the newest one changed, somebody else has taken over.
            continue
        for span in spans:
            if not span.entries:
                await discard_ledger(env.ledgers, span.place)
        chain = Chain(kept, taken.place.ledger_id, taken.stamp)
        return OpenedChain(name, node, document, chain, taken.writer)
    if taken is not None:
        await discard_ledger(env.ledgers, taken.place)
    raise Fenced(f"another owner took over managed ledger {name} at the same time")


async def _read(name: str, env: Environment, *, create: bool) -> tuple[OwnedNode, ChainDocument]:
    path = f"{MANAGED_LEDGERS}/{name}"
    found = await env.metadata.get(path)
    if found is not None:
        node = OwnedNode(env.metadata, path, found.stat.version, env.config.chain_compression)
        return node, decode_chain(found.value, name)
    if not create:
        raise NotFound(f"there is no managed ledger {name}")
    new = OwnedNode(env.metadata, path, ABSENT, env.config.chain_compression)
    return new, ChainDocument()


def _newest_id(document: ChainDocument) -> int:
    return document.spans[-1].ledger_id if document.spans else -1


async def _recover(name: str, document: ChainDocument, env: Environment) -> tuple[LedgerSpan, ...]:
    """Close the ledgers that were not closed and learn what they hold."""
    spans = list(document.spans)
    for index, span in enumerate(spans):
        if span.closed_ms and index < len(spans) - 1:
            continue
        reader = await open_ledger(name, env.ledgers, span.place)
        description = await env.ledgers.describe(span.place)
        spans[index] = replace(
            span,
            entries=reader.last_entry_id + 1,
            size_bytes=description.length_bytes,
            closed_ms=span.closed_ms or env.runtime.clock.wall_ms(),
        )
    return tuple(spans)


async def open_ledger(name: str, ledgers: StorageClusters, place: LedgerPlace) -> LedgerReader:
    """Open a ledger that the chain names.

    Raises:
        StorageError: if it is not there.
    """
    try:
        return await ledgers.open(place)
    except NotFound as error:
        cluster, ledger_id = ledgers.key(place)
        raise StorageError(
            f"ledger {ledger_id} of managed ledger {name} is not in the ledger store of storage "
            f"cluster {cluster}"
        ) from error


async def create_ledger(
    name: str, env: Environment, *, above: int, quorums: LedgerQuorums | None
) -> CreatedLedger:
    """Begin a ledger whose id is above all in the chain.

    Raises:
        ConflictError: if the id is not; nothing was created.
    """
    metadata = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": name.encode(),
    }
    return await env.ledgers.create(
        f"managed ledger {name}", metadata, above=above, quorums=quorums
    )


def new_span(created: CreatedLedger) -> LedgerSpan:
    """A ledger just created, as a chain names it."""
    return LedgerSpan(created.place.ledger_id, stamp=created.stamp)


async def start_over(ledgers: StorageClusters, created: CreatedLedger) -> None:
    """Give up a ledger that the catalog's change kept from being published, and learn the change.

    The guard refused, so it is certain that nobody names the ledger.
    """
    _log.info("storage_catalog_changed", ledger=created.place.ledger_id)
    await discard_ledger(ledgers, created.place)
    await ledgers.refresh()


async def discard_ledger(ledgers: StorageClusters, place: LedgerPlace) -> None:
    """Delete a ledger that nothing names; if that fails it only takes up room."""
    try:
        await ledgers.delete(place)
    except NotFound:
        return
    except AnabranchError as error:
        cluster, ledger_id = ledgers.key(place)
        _log.warning(
            "unused_ledger_not_deleted", ledger=ledger_id, cluster=cluster, error=str(error)
        )
