"""Access rights as ZooKeeper shows them. Pure.

Whoever may not administer a node is shown its rights without the passwords' digests: `user:x`.
"""

from collections.abc import Sequence
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.metadata.store import AccessRight

_DIGEST: Final = "digest"
_HIDDEN: Final = "x"


def hides_password(right: AccessRight) -> bool:
    """Whether the digest of a password is missing, so that nobody could use the right again."""
    return right.scheme == _DIGEST and right.identity.rpartition(":")[2] == _HIDDEN


def may_be_seen_as(rights: Sequence[AccessRight], seen: Sequence[AccessRight]) -> bool:
    """Whether rights are what was seen, by somebody who may not see everything."""
    return len(rights) == len(seen) and all(map(_same, rights, seen))


def is_born_open(rights: Sequence[AccessRight], seen: Sequence[AccessRight]) -> bool:
    """Whether what was seen are rights and, behind them, those of whoever restores."""
    return len(rights) < len(seen) and may_be_seen_as(rights, seen[: len(rights)])


def tell_open(error: BaseException, prefix: str, remedy: str) -> None:
    """Let an error say that nodes have not got their own rights yet."""
    told = (
        f"nodes at and below {prefix} that were written are open still to who wrote them, and "
        f"if that is nobody by name, open to everybody; {remedy}"
    )
    if isinstance(error, AnabranchError):
        error.args = (f"{error}; {told}", *error.args[1:])
    else:
        error.add_note(told)


def _same(right: AccessRight, seen: AccessRight) -> bool:
    if right == seen or not hides_password(seen):
        return right == seen
    user = right.identity.rpartition(":")[0]
    return seen == AccessRight(right.permissions, right.scheme, f"{user}:{_HIDDEN}")
