"""Bounds of the store on Oxia that nobody else needs. Constants only."""

from typing import Final

EXPORTED_INDEX_KEYS_MAX: Final = 200_000
"""Index keys that an export holds at once; if there are more it lists them again and again."""
EXPORTED_COUNTS_MAX: Final = 200_000
"""Counts of sequential children that an export holds at once; it looks the others up."""
