"""Which bookies have which entries, and who takes the place of one that failed. Pure.

Entry e of a segment is on the `write_quorum` bookies that follow place e modulo the size of the
ensemble, in a circle.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, LedgerMetadata

Draw = Callable[[int], int]
"""Give a number in 0..n-1."""


@dataclass(frozen=True, slots=True)
class Quorums:
    """How many bookies a ledger has, get each entry, and must confirm it."""

    ensemble: int
    write: int
    ack: int

    @staticmethod
    def of(metadata: LedgerMetadata) -> "Quorums":
        """Those of a ledger."""
        return Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """The places of the bookies that get an entry."""
        return _write_set(entry_id % self.ensemble, self.ensemble, self.write)

    @property
    def absent_needed(self) -> int:
        """So many bookies without an entry mean that it was never confirmed.

        A confirmed entry is on `ack` of its `write` bookies, so at most write - ack lack it.
        """
        return self.write - self.ack + 1

    def covered(self, answered: Collection[int]) -> bool:
        """Whether every entry's confirmation would have needed one of the bookies that answered.

        So it is if no `ack` bookies of any write set are silent.
        """
        for first in range(self.ensemble):
            places = _write_set(first, self.ensemble, self.write)
            if sum(place not in answered for place in places) >= self.ack:
                return False
        return True


@lru_cache(maxsize=4096)
def _write_set(first: int, ensemble: int, write: int) -> tuple[int, ...]:
    return tuple((first + number) % ensemble for number in range(write))


def choose(count: int, candidates: Sequence[str], draw: Draw) -> list[str]:
    """Draw some of the candidates, as many as there are if that is fewer."""
    pool = list(candidates)
    chosen: list[str] = []
    while pool and len(chosen) < count:
        chosen.append(pool.pop(draw(len(pool))))
    return chosen


def choose_replacements(
    bookies: Sequence[str],
    failed_places: Iterable[int],
    writable: Sequence[str],
    draw: Draw,
) -> dict[int, str]:
    """Who is to take the failed places; places that nobody is left for are missing.

    Bookies of the ensemble are never taken, not even one that failed: it would count twice.
    """
    places = sorted(failed_places)
    chosen = choose(len(places), [bookie for bookie in writable if bookie not in bookies], draw)
    return dict(zip(places, chosen, strict=False))


def places_to_leave(
    bookies: Sequence[str], gone: Callable[[str], bool], writable: Collection[str]
) -> tuple[int, ...]:
    """Places of bookies that are gone, as many as there are others to take them.

    A bookie that nobody can replace keeps its place: it may come back, and an entry that is sent
    to it in vain does no harm.
    """
    spare = sum(bookie not in bookies for bookie in writable)
    return tuple(place for place, bookie in enumerate(bookies) if gone(bookie))[:spare]


def replaced(bookies: Sequence[str], replacements: Mapping[int, str]) -> tuple[str, ...]:
    """The ensemble with some places taken by others."""
    return tuple(replacements.get(place, bookie) for place, bookie in enumerate(bookies))


def with_segment(
    segments: tuple[EnsembleSegment, ...], first_entry_id: int, bookies: tuple[str, ...]
) -> tuple[EnsembleSegment, ...]:
    """The segments of a ledger whose entries from some entry on are elsewhere.

    A last segment that begins at the same entry has no entries: the new one takes its place.
    """
    last = segments[-1]
    assert last.first_entry_id <= first_entry_id, "an ensemble changes at the end only"
    kept = segments[:-1] if last.first_entry_id == first_entry_id else segments
    return (*kept, EnsembleSegment(first_entry_id, bookies))
