"""What the bookies of an open ledger say of its end, and fencing them; nothing is decided here."""

import asyncio
from collections.abc import Sequence

from anabranch.errors import AnabranchError, Corruption, Unreachable
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.digests import LAST_ENTRY
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata
from anabranch.ledgers.bookkeeper.reader import LedgerView
from anabranch.ledgers.bookkeeper.reading import EntryReads

_Answer = tuple[Status, pb.Response | None]


async def last_known(cluster: Cluster, metadata: LedgerMetadata) -> tuple[int, int]:
    """The last entry of an open ledger that its bookies know to be confirmed, and its length.

    Later entries may be confirmed too, if their writer has told nobody yet.

    Raises:
        Unreachable: if so many are silent that they may have confirmed entries by themselves.
    """
    view = LedgerView(metadata)
    segment = metadata.segments[-1]
    last = segment.first_entry_id - 1
    answered: list[int] = []
    answers = await _ask_all(cluster, segment.bookies, frames.read_lac(metadata.ledger_id))
    for place, (status, response) in enumerate(answers):
        if status is Status.OK or status.says_absent:
            answered.append(place)
        if response is not None and response.HasField("read_lac"):
            last = max(last, _confirmed_in(view, response.read_lac))
    if not view.quorums.covered(answered):
        raise Unreachable(
            f"the end of ledger {metadata.ledger_id} is not known now: too few of the bookies "
            f"{', '.join(segment.bookies)} answer"
        )
    if last < 0:
        return -1, 0
    reads = EntryReads(
        cluster.links, view.digest, view.ledger_id, cluster.settings.speculative_read_s
    )
    result = (await reads.read([view.wanted(last)]))[last]
    if isinstance(result, AnabranchError):
        raise result
    return last, result.length


def _confirmed_in(view: LedgerView, answer: pb.ReadLacResponse) -> int:
    found = -1
    try:
        if answer.HasField("lac_body"):
            found = max(found, view.digest.open_lac_packet(answer.lac_body, view.ledger_id))
        if answer.HasField("last_entry_body"):
            packet = view.digest.open_packet(answer.last_entry_body, view.ledger_id, LAST_ENTRY)
            found = max(found, packet.last_confirmed)
    except Corruption:
        pass  # the others tell as well
    return found


async def fence(cluster: Cluster, metadata: LedgerMetadata) -> None:
    """Let the bookies that answer take no more entries of a ledger's writer."""
    key = LedgerView(metadata).master_key
    request = frames.read(metadata.ledger_id, LAST_ENTRY, fence_key=key)
    await _ask_all(cluster, metadata.segments[-1].bookies, request)


async def _ask_all(cluster: Cluster, bookies: Sequence[str], request: Request) -> list[_Answer]:
    return list(
        await asyncio.gather(*(cluster.links.link(bookie).call(request) for bookie in bookies))
    )
