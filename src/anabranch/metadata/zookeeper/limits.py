"""Bounds of the store on ZooKeeper that nobody else needs. Constants only."""

from typing import Final

WATCHED_RESTORE_NODES_MAX: Final = 4096
"""A restore of more nodes goes on without a watch if nobody reads along."""
