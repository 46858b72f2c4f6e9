"""A process that ends another one with SIGKILL in the moment that a phase is announced.

    python -m anabranch.testing.phase_striker ORDER

It sees the journal of the operation as the processes do that take part: phases that last for some
milliseconds are over before anybody asks by the REST interface. The order is JSON, see `Order`. It
says `ready` on standard output, and later in one line of JSON what it did, see `Blow`. What the
journal says after the kill tells whether the blow fell in its phase or too late.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from anabranch.metadata.announced import OPERATIONS, journal_path
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.document import read_journal
from anabranch.migrations.engine.state import State
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime.real import real_runtime

DRIVER, BROKER, TARGET, BOOKIE = "driver", "broker", "target", "bookie"


@dataclass(frozen=True, slots=True)
class Order:
    """Whom to strike, and when."""

    url: str
    """Of the store with the journal."""
    number: int
    """Of the attempt; what is announced for another one counts for nothing."""
    phase: str
    victim: str
    brokers: Mapping[str, int]
    """Process ids, by what the names of drivers end with: their host and web port."""
    target: int
    """The process id of the target."""
    bookie: int = 0
    """The process id of a bookie that is led; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Blow:
    """What was done."""

    pid: int
    """Who was struck; 0 if the phase was over before it was seen, or never came."""
    phase: str
    """What the journal said right after it."""
    at_s: float = 0.0
    """When, by the monotonic clock, which processes share."""

    def fell_in(self, phase: str) -> bool:
        """Whether the victim was dead while the phase was still in force."""
        return bool(self.pid) and self.phase == phase


def pid_of(order: Order, driver: str) -> int:
    """Whom an order means while somebody drives."""
    if order.victim == TARGET:
        return order.target
    if order.victim == BOOKIE:
        return order.bookie
    drives = [pid for name, pid in order.brokers.items() if name in driver]
    others = [pid for name, pid in order.brokers.items() if name not in driver]
    return (drives if order.victim == DRIVER else others)[0]


def is_missed(order: Order, state: State) -> bool:
    """Whether the phase will not be announced any more: it may have lasted for a millisecond."""
    now = state.announced
    if now.number != order.number:
        return now.number > order.number
    return now.phase != order.phase and order.phase not in _ahead_of(now.phase)


def _ahead_of(phase: str) -> set[str]:
    """Where an attempt may still come to."""
    found: set[str] = set()
    more = {phase}
    while more:
        more = {arrow.new for arrow in TABLE.transitions() if arrow.old in more} - found
        found |= more
    return found


def is_meant(order: Order, state: State) -> bool:
    """Whether the moment has come; a driver is known by then."""
    now = state.announced
    return (now.number, now.phase) == (order.number, order.phase) and any(
        name in state.driver for name in order.brokers
    )


async def strike(order: Order) -> Blow:
    """Wait for the phase, and strike."""
    store = await open_store(order.url, real_runtime())
    try:
        changes = store.watch(OPERATIONS)
        print("ready", flush=True)
        state = await _read(store)
        while state is None or not (is_meant(order, state) or is_missed(order, state)):
            await anext(changes)
            state = await _read(store)
        if not is_meant(order, state):
            return Blow(0, state.phase)
        pid = pid_of(order, state.driver)
        at_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        after = await _read(store)
        assert after is not None, "a journal stays"
        return Blow(pid, after.phase, at_s)
    finally:
        await store.close()


async def _read(store: MetadataStore) -> State | None:
    node = await store.get(journal_path(FreezeCopy.kind))
    return None if node is None else read_journal(node.value, TABLE).state


def main(arguments: Sequence[str]) -> None:
    """Do what is ordered."""
    order = Order(**json.loads(arguments[0]))
    print(json.dumps(asdict(asyncio.run(strike(order)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
