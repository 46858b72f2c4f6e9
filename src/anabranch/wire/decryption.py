"""Payloads that a producer encrypted for the holders of private keys, as Pulsar's clients do. Pure.

A producer draws a key of its own, encrypts payloads with it (AES-GCM, the tag behind the text), and
tells it in every entry, encrypted for each public key that it was given (RSA-OAEP with SHA-1). One
private key of them is enough. What was compressed is unpacked afterwards; a message in chunks is
encrypted chunk by chunk.
"""

from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from anabranch import limits
from anabranch.errors import AnabranchError, ConfigError
from anabranch.generated.pulsar_api_pb2 import EncryptionKeys, MessageMetadata
from anabranch.wire.commands import Buffer

_OAEP: Final = OAEP(MGF1(SHA1()), SHA1(), None)


class NotDecrypted(AnabranchError):
    """An encrypted payload that cannot be read."""


class PrivateKeyMissing(NotDecrypted):
    """It is encrypted for keys of which none is here."""


class WrongPrivateKey(NotDecrypted):
    """A private key with the right name is not the other half of the public key."""


class DamagedCiphertext(NotDecrypted):
    """It was changed after it was encrypted, or is not encrypted as it says."""


def private_key(name: str, pem: bytes) -> RSAPrivateKey:
    """Read a private key.

    Raises:
        ConfigError: if it is none, has a password, or is of a kind that payloads are not encrypted
            for.
    """
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"the private key {name!r} cannot be read: {error}") from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigError(f"the private key {name!r} is not an RSA key")
    return key


class Decryption:
    """Private keys, and what producers' keys were found with them."""

    def __init__(self, keys: Mapping[str, RSAPrivateKey]) -> None:
        self._keys = dict(keys)
        self._ciphers: dict[tuple[str, bytes], AESGCM] = {}

    def decrypted(self, metadata: MessageMetadata, payload: Buffer) -> bytes:
        """Return the payload of an entry as it was before it was encrypted.

        Raises:
            PrivateKeyMissing: if it is not encrypted for any of the keys that are here.
            WrongPrivateKey: if those with the right names do not open it.
            DamagedCiphertext: if it is not what the producer encrypted.
        """
        cipher = self._cipher(metadata)
        try:
            return cipher.decrypt(metadata.encryption_param, bytes(payload), None)
        except InvalidTag:
            raise DamagedCiphertext("it was changed after it was encrypted") from None
        except ValueError as error:
            raise DamagedCiphertext(f"it is not encrypted as it says: {error}") from None

    def _cipher(self, metadata: MessageMetadata) -> AESGCM:
        names = [_text(each.key) for each in metadata.encryption_keys]
        known = [each for each in metadata.encryption_keys if _text(each.key) in self._keys]
        if not known:
            raise PrivateKeyMissing(
                f"it is encrypted for {_listed(names)}, and "
                f"the private keys here are {_listed(self._keys)}"
            )
        for each in known:
            cipher = self._opened(each)
            if cipher is not None:
                return cipher
        wrong = _listed(_text(each.key) for each in known)
        raise WrongPrivateKey(f"it is encrypted for {wrong}, and not for the private key here")

    def _opened(self, wrapped: EncryptionKeys) -> AESGCM | None:
        """The key of a producer, if it can be had."""
        name = _text(wrapped.key)
        which = (name, wrapped.value)
        if (known := self._ciphers.get(which)) is not None:
            return known
        try:
            cipher = AESGCM(self._keys[name].decrypt(wrapped.value, _OAEP))
        except ValueError:
            return None
        if len(self._ciphers) >= limits.PRODUCER_KEYS_REMEMBERED_MAX:
            del self._ciphers[next(iter(self._ciphers))]
        self._ciphers[which] = cipher
        return cipher


def _listed(names: object) -> str:
    return ", ".join(map(repr, names)) or "none"  # type: ignore[call-overload]


def _text(value: str | bytes) -> str:
    """Protobuf hands out a string that is not UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
