"""Which properties a cursor may have. Pure."""

from collections.abc import Iterable

from anabranch import limits
from anabranch.errors import InputError
from anabranch.ledgers.stamps import RESERVED_PREFIXES, is_reserved

_PROPERTY_OVERHEAD_BYTES = 24


def check_properties_size(names: Iterable[str], values: Iterable[str] = ()) -> None:
    """Refuse properties that would not fit a cursor's node.

    Raises:
        InputError: saying by how much.
    """
    size = sum(len(name.encode()) + _PROPERTY_OVERHEAD_BYTES for name in names)
    size += sum(len(value.encode()) for value in values)
    if size > limits.CURSOR_PROPERTIES_BYTES_MAX:
        raise InputError(
            f"the properties of a cursor take {size} bytes; "
            f"at most {limits.CURSOR_PROPERTIES_BYTES_MAX} are allowed"
        )


def refuse_reserved(names: Iterable[str]) -> None:
    """Refuse properties that only the system writes.

    Raises:
        InputError: naming the first.
    """
    for name in names:
        if is_reserved(name):
            raise InputError(
                f"the property {name!r} of a cursor is reserved: names that begin with "
                f"{' or '.join(RESERVED_PREFIXES)} belong to the system"
            )
