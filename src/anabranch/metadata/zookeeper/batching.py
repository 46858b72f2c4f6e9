"""How a batch is cut so that its operations may be under way together. Pure.

Operations of one wave touch nodes that have nothing to do with each other, so that it does not
matter which of them has to be tried twice; what has comes in a later wave.
"""

from collections.abc import Iterator, Sequence

from anabranch import limits
from anabranch.metadata.paths import ancestors_of
from anabranch.metadata.store import Operation, Put

Wave = list[tuple[int, Operation]]
"""Operations with their places in the batch."""


def waves(operations: Sequence[tuple[int, Operation]]) -> Iterator[Wave]:
    """Cut checked operations into waves, in order."""
    wave: Wave = []
    touched: set[str] = set()
    above: set[str] = set()
    guards: set[str] = set()
    for place, operation in operations:
        path, guard = operation.path, operation.guard
        sequential = isinstance(operation, Put) and operation.sequential
        own_ancestors = list(ancestors_of(path))
        related = (
            (not sequential and (path in touched or path in above or path in guards))
            or any(ancestor in touched for ancestor in own_ancestors)
            or (guard is not None and (guard.path in touched or guard.path in above))
        )
        if wave and (related or len(wave) >= limits.METADATA_COMMAND_OPERATIONS_MAX):
            yield wave
            wave, touched, above, guards = [], set(), set(), set()
        wave.append((place, operation))
        above.update(own_ancestors)
        if not sequential:
            touched.add(path)
        if guard is not None:
            guards.add(guard.path)
    if wave:
        yield wave
