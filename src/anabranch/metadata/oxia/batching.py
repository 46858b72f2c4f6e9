"""Which operations of a batch may be under way together. Pure.

Operations are carried out in order as far as anybody can tell: two that touch the same node, or a
node and one above it, or a guard and its node, or draw numbers of one parent, wait for each other.
"""

from collections.abc import Iterator, Sequence

from anabranch.metadata.paths import ancestors_of, parent_of
from anabranch.metadata.store import Operation, Put


class _Group:
    def __init__(self) -> None:
        self.places: list[int] = []
        self._paths: set[str] = set()
        self._above: set[str] = set()
        self._guards: set[str] = set()

    def takes(self, operation: Operation) -> bool:
        path = _touched(operation)
        if path in self._paths or path in self._above or path in self._guards:
            return False
        if operation.guard is not None and operation.guard.path in self._paths:
            return False
        return not any(above in self._paths for above in ancestors_of(path))

    def add(self, place: int, operation: Operation) -> None:
        path = _touched(operation)
        self.places.append(place)
        self._paths.add(path)
        self._above.update(ancestors_of(path))
        if operation.guard is not None:
            self._guards.add(operation.guard.path)


def _touched(operation: Operation) -> str:
    if isinstance(operation, Put) and operation.sequential:
        # Any two below one parent: the name is not known before the number is.
        return f"{parent_of(operation.path + '0').rstrip('/')}/\x00"
    return operation.path


def groups(operations: Sequence[Operation], places: Sequence[int]) -> Iterator[list[int]]:
    """Cut checked operations into groups; `places` says which they are among others."""
    group = _Group()
    for place, operation in zip(places, operations, strict=True):
        if group.places and not group.takes(operation):
            yield group.places
            group = _Group()
        group.add(place, operation)
    if group.places:
        yield group.places
