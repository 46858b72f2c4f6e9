"""Every bound of ownership, with its unit in the name."""

from typing import Final

BUNDLES_PER_NAMESPACE_MAX: Final = 1 << 16
BUNDLES_PER_NAMESPACE: Final = 4
"""Of a namespace that nobody has cut otherwise."""
OWNER_CACHE_ENTRIES_MAX: Final = 100_000
"""Owners of bundles that a broker remembers."""
GIVEN_AWAY_S: Final = 30.0
"""How long a broker that gave a bundle to another sends clients there, though nobody has it yet."""
LEAVE_S_MAX: Final = 10.0
"""How long a broker that stops waits for the metadata store to take note of it."""
