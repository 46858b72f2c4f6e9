"""Tokens of several stores told apart. Pure.

Versions and revisions of two stores have nothing in common. So what a store gave out after a switch
carries the generation of that store, above all that any store counts with: later generations are
larger, whatever the numbers below. A store that was never switched to has generation 0, and its
tokens are its own.
"""

from typing import Final

from anabranch.metadata.store import Revision, Stat, Version

_SHIFT: Final = 128
_OWN: Final = (1 << _SHIFT) - 1


def generation_of(token: Version | Revision) -> int:
    """Which store a token is of."""
    return token.epoch >> _SHIFT


def marked_version(version: Version, generation: int) -> Version:
    """As callers see it."""
    return version._replace(epoch=version.epoch | generation << _SHIFT)


def marked_revision(revision: Revision, generation: int) -> Revision:
    """As callers see it."""
    return Revision(revision.epoch | generation << _SHIFT, revision.index)


def marked_stat(stat: Stat, generation: int) -> Stat:
    """As callers see it."""
    return stat._replace(
        version=marked_version(stat.version, generation),
        revision=marked_revision(stat.revision, generation),
    )


def own_version(version: Version) -> Version:
    """As its store knows it."""
    return version._replace(epoch=version.epoch & _OWN) if version.epoch > _OWN else version


def own_revision(revision: Revision) -> Revision:
    """As its store knows it."""
    return Revision(revision.epoch & _OWN, revision.index)
