"""Taking over a managed ledger: recover its last ledger, begin a new one, publish the chain.

The order is what makes it safe. Recovering fences the previous owner's writer; publishing is
conditional on the version that was read, so of two takers one fails; ledgers are deleted only
after no published chain names them. A crash in between leaves at most a ledger that nobody names.
"""

from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.errors import AnabranchError, ConflictError, Fenced, NotFound, StorageError
from anabranch.ledgers.ledger_ids import PATH as LEDGER_IDS_PATH
from anabranch.ledgers.store import LedgerReader, LedgerStore, LedgerWriter
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


async def open_chain(name: str, env: Environment, *, create: bool) -> OpenedChain:
    """Take over a managed ledger.

    Raises:
        NotFound: if there is none and `create` is false.
        Fenced: if another owner took it over at the same time.
    """
    taken: tuple[int, LedgerWriter] | None = None
    newest: int | None = None
    for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
        node, document = await _read(name, env, create=create)
        if newest is not None and newest != _newest_id(document):
            break
        newest = _newest_id(document)
        spans = await _recover(name, document, env)
        if document.terminated is not None:
            if taken is not None:
                await discard_ledger(env.ledgers, taken[0])
            spans = spans or (LedgerSpan(document.terminated.ledger_id, closed_ms=1),)
            return OpenedChain(name, node, document, Chain(spans, None), None)
        taken = taken or await create_ledger(name, env, above=newest)
        ledger_id, writer = taken
        kept = tuple(span for span in spans if span.entries)
        document = replace(document, spans=(*kept, LedgerSpan(ledger_id)))
        try:
            await node.write(encode_chain(document))
        except Fenced:
            # The previous owner may still trim and set properties, but it cannot go on to another
            # ledger. If the newest one changed, somebody else has taken over.
            continue
        for span in spans:
            if not span.entries:
                await discard_ledger(env.ledgers, span.ledger_id)
        return OpenedChain(name, node, document, Chain(kept, ledger_id), writer)
    if taken is not None:
        await discard_ledger(env.ledgers, taken[0])
    raise Fenced(f"another owner took over managed ledger {name} at the same time")


async def _read(name: str, env: Environment, *, create: bool) -> tuple[OwnedNode, ChainDocument]:
    path = f"{MANAGED_LEDGERS}/{name}"
    found = await env.metadata.get(path)
    if found is not None:
        node = OwnedNode(env.metadata, path, found.stat.version)
        return node, decode_chain(found.value, name)
    if not create:
        raise NotFound(f"there is no managed ledger {name}")
    return OwnedNode(env.metadata, path, ABSENT), ChainDocument()


def _newest_id(document: ChainDocument) -> int:
    return document.spans[-1].ledger_id if document.spans else -1


async def _recover(name: str, document: ChainDocument, env: Environment) -> tuple[LedgerSpan, ...]:
    """Close the ledgers that were not closed and learn what they hold."""
    spans = list(document.spans)
    for index, span in enumerate(spans):
        if span.closed_ms and index < len(spans) - 1:
            continue
        reader = await open_ledger(name, env.ledgers, span.ledger_id)
        description = await env.ledgers.describe(span.ledger_id)
        spans[index] = replace(
            span,
            entries=reader.last_entry_id + 1,
            size_bytes=description.length_bytes,
            closed_ms=span.closed_ms or env.runtime.clock.wall_ms(),
        )
    return tuple(spans)


async def open_ledger(name: str, ledgers: LedgerStore, ledger_id: int) -> LedgerReader:
    """Open a ledger that the chain names.

    Raises:
        StorageError: if it is not there.
    """
    try:
        return await ledgers.open(ledger_id)
    except NotFound as error:
        raise StorageError(
            f"ledger {ledger_id} of managed ledger {name} is not in the ledger store"
        ) from error


async def create_ledger(name: str, env: Environment, *, above: int) -> tuple[int, LedgerWriter]:
    """Begin a ledger whose id is above all in the chain.

    Raises:
        ConflictError: if the id is not; nothing was created.
    """
    ledger_id = await env.ids.next()
    if ledger_id <= above:
        raise ConflictError(
            f"ledger id {ledger_id} is not above {above}, the newest ledger of managed ledger "
            f"{name}; raise the counter at {LEDGER_IDS_PATH} above all ledgers in use"
        )
    metadata = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": name.encode(),
    }
    return ledger_id, await env.ledgers.create(ledger_id, custom_metadata=metadata)


async def publish_with_new_ledger(
    node: OwnedNode, document: ChainDocument, ledgers: LedgerStore
) -> None:
    """Publish a chain that ends with a ledger just created.

    Raises:
        Fenced: if another owner was faster; the new ledger is removed again.
    """
    try:
        await node.write(encode_chain(document))
    except Fenced:
        # Only here is it certain that no chain names it; an unknown outcome must leave it alone.
        await discard_ledger(ledgers, document.spans[-1].ledger_id)
        raise


async def discard_ledger(ledgers: LedgerStore, ledger_id: int) -> None:
    """Delete a ledger that no chain names; if that fails it only takes up room."""
    try:
        await ledgers.delete(ledger_id)
    except NotFound:
        return
    except AnabranchError as error:
        _log.warning("unused_ledger_not_deleted", ledger=ledger_id, error=str(error))
