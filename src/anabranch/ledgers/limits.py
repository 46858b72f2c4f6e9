"""Bounds that only ledger stores have, with the unit in the name."""

from typing import Final

SEALED_LEDGERS_LOOKS_MAX: Final = 5
"""How often a folder that its server is tidying is looked at before something counts as missing."""
