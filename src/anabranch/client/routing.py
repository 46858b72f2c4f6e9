"""Which partition a message goes to. Pure."""

import base64
from collections.abc import Callable
from typing import Final, Literal

from anabranch.errors import ConfigError, InputError
from anabranch.wire.key_hash import java_string_hash, murmur3

Routing = Literal["round_robin", "single"]
KeyHash = Literal["murmur3", "java_string"]
Router = Callable[[str | bytes | None, int], int]
"""Given the key and the number of partitions, says which."""
_KEY_HASHES: Final[dict[str, Callable[[str], int]]] = {
    "murmur3": lambda text: murmur3(text.encode()),
    "java_string": java_string_hash,
}


class Routes:
    """Chooses partitions: by the key, else in turn or always the same one."""

    def __init__(self, routing: Routing | Router, key_hash: KeyHash, first: int) -> None:
        """Begin with some partition, so that not all producers begin with the same.

        Raises:
            ConfigError: if there is no such way.
        """
        if not callable(routing) and routing not in ("round_robin", "single"):
            raise ConfigError(f"routing is round_robin, single or a function, not {routing!r}")
        if key_hash not in _KEY_HASHES:
            raise ConfigError(f"no hash of keys {key_hash!r}; there are {', '.join(_KEY_HASHES)}")
        self._routing = routing
        self._hash = _KEY_HASHES[key_hash]
        self._next = first

    def choose(self, key: str | bytes | None, partitions: int, *, stay: bool) -> int:
        """The partition of a message; `stay` keeps one without a key beside the one before.

        Raises:
            InputError: if a function chose a partition that is not there.
        """
        if callable(self._routing):
            chosen = self._routing(key, partitions)
            if not 0 <= chosen < partitions:
                raise InputError(f"there is no partition {chosen}, only 0 to {partitions - 1}")
            return chosen
        if key is not None:
            # A key of bytes travels in base64, and is hashed as it travels.
            text = key if isinstance(key, str) else base64.b64encode(key).decode()
            return self._hash(text) % partitions
        if self._routing == "round_robin" and not stay:
            self._next += 1
        return self._next % partitions

    def at(self, partitions: int) -> int:
        """The partition that messages without a key go to now."""
        return self._next % partitions
