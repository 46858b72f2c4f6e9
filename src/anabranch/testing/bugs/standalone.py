"""Planted bugs that a standalone server shows as a whole: its start, its restart, its memory."""

import asyncio
from dataclasses import replace

from anabranch.ledgers.store import LedgerState
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import ChainDocument, CursorDocument
from anabranch.server.assembly import Standalone
from anabranch.testing.planted import original, planted

_BALLAST_BYTES = 200 * 1024 * 1024
_DELAY_S = 3.0
_held: list[bytes] = []


@planted("announcement_names_no_address", target="anabranch.cli.standalone:_announce")
def announcement_names_no_address(server: Standalone) -> None:
    """The commands that are printed after the start lead to the default port."""
    print(f"anabranch is ready: {server.service_url}  web {server.web_url}")
    print("  python -m anabranch produce my-topic -m hello")
    print("  python -m anabranch consume my-topic -s s --position earliest", flush=True)


@planted(
    "acknowledgements_are_forgotten",
    target="anabranch.managed_ledger.formats:restore_acknowledged",
)
def acknowledgements_are_forgotten(document: CursorDocument, chain: Chain) -> Acknowledged:
    """A cursor that is taken over begins at the first entry again."""
    del document
    return Acknowledged(chain, chain.previous_position(chain.first_position()))


@planted("crash_empties_the_open_ledger", target="anabranch.managed_ledger.opening:_recover")
async def crash_empties_the_open_ledger(
    name: str, document: ChainDocument, env: Environment
) -> tuple[LedgerSpan, ...]:
    """What is in a ledger that nobody closed does not count."""
    described = [await env.ledgers.describe(span.place) for span in document.spans]
    spans = await original("crash_empties_the_open_ledger")(name, document, env)
    return tuple(
        replace(span, entries=0) if before.state is LedgerState.OPEN else span
        for span, before in zip(spans, described, strict=True)
    )


@planted("start_takes_ballast", target="anabranch.server.assembly:Standalone._start_broker")
async def start_takes_ballast(self: Standalone) -> None:
    """The server takes memory that it does not need."""
    _held.append(b"\1" * _BALLAST_BYTES)
    await original("start_takes_ballast")(self)


@planted("start_takes_its_time", target="anabranch.server.assembly:Standalone._listen")
async def start_takes_its_time(self: Standalone) -> None:
    """The server is not ready as soon as it could be."""
    await asyncio.sleep(_DELAY_S)
    await original("start_takes_its_time")(self)
