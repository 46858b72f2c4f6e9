"""Entries that producers encrypted: decrypted, and what becomes of those that cannot be. Pure.

The choices are those of Pulsar's consumers: fail, leave the entry out, or hand it over as it is.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.telemetry import get_logger
from anabranch.wire import Buffer
from anabranch.wire.decryption import Decryption, NotDecrypted

FAIL, DISCARD, CONSUME = "fail", "discard", "consume"
FAILURE_ACTIONS: Final = (FAIL, DISCARD, CONSUME)
_log = get_logger("spark")


class Payload(NamedTuple):
    """What there is to read in an encrypted entry."""

    content: Buffer
    is_clear: bool
    """Whether it could be decrypted; else it is as it is stored."""


class Unlocking:
    """The private keys of a task, and what it does with entries that they do not open."""

    def __init__(self, keys: Mapping[str, RSAPrivateKey], failure_action: str) -> None:
        self._decryption = Decryption(keys)
        self._failure_action = failure_action

    def payload(
        self, metadata: MessageMetadata, stored: Buffer, ledger_id: int, entry_id: int
    ) -> Payload | None:
        """Decrypt the payload of an entry; None if the entry is to be left out.

        Raises:
            NotDecrypted: naming the entry and what is wrong, if that is how to fail.
        """
        try:
            return Payload(self._decryption.decrypted(metadata, stored), True)
        except NotDecrypted as error:
            place = f"{ledger_id}:{entry_id}"
            if self._failure_action == FAIL:
                raise type(error)(f"entry {place} cannot be decrypted: {error}") from error
            if self._failure_action == CONSUME:
                return Payload(stored, False)
            _log.warning("entry_left_out", entry=place, because=str(error))
            return None


NO_KEYS: Final = Unlocking({}, FAIL)
"""Of a reader that is not told any."""
