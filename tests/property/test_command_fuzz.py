"""Whole commands with hostile values against a server: answered or cut off, and nothing else."""

import random

import pytest

from anabranch.errors import ProtocolError
from anabranch.testing.command_fuzz import fuzz
from anabranch.testing.hostile_commands import HostileCommands
from anabranch.wire import BaseCommand, Decoder, Send

SEEDS = (5, 31)
"""Each of them has broken a broker once."""


@pytest.mark.goal("core.S3", part="commands", broken_by="claimed_batches_are_believed")
@pytest.mark.goal("core.B1", part="out of state", broken_by="claimed_batches_are_believed")
async def test_hostile_commands_harm_nobody_else() -> None:
    """Every request is answered or ends its connection; another client is served afterwards."""
    assert sum([await fuzz(seed, commands=300) for seed in SEEDS]) > 150


def test_every_command_comes_and_most_of_what_clients_send_is_understood() -> None:
    made, seen, sends = HostileCommands(random.Random(1)), set[int](), 0
    for _ in range(2000):
        data, _ = made.next()
        try:
            (command,) = Decoder().feed(data)
        except ProtocolError:
            continue
        if isinstance(command, BaseCommand):
            seen.add(command.type)
        sends += type(command) is Send
    assert sends > 300
    assert len(seen) > 40, "not only what clients usually send"
    assert {BaseCommand.PRODUCER, BaseCommand.SUBSCRIBE, BaseCommand.SEEK} <= seen


def test_a_seed_repeats() -> None:
    def made(seed: int) -> list[tuple[bytes, int | None]]:
        commands = HostileCommands(random.Random(seed))
        return [*commands.opening(), *(commands.next() for _ in range(50))]

    assert made(3) == made(3) != made(4)
