"""What ZooKeeper's refusals mean to callers of the contract. Pure."""

from anabranch.errors import (
    AnabranchError,
    InputError,
    InvalidPath,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.paths import parent_of
from anabranch.metadata.zookeeper.replies import Code, Refusal


def meaning(refusal: Refusal, path: str) -> AnabranchError:
    """What a refusal means that no caller has handled."""
    if refusal.code == Code.SESSION_EXPIRED:
        return SessionExpired(f"{path} was not written: the session has ended")
    if refusal.code == Code.SESSION_MOVED:
        return Unreachable(f"{path}: the session has moved to another connection")
    if refusal.code == Code.NO_AUTH:
        return InputError(f"{path}: the node's access rights (ACL) do not allow this")
    if refusal.code == Code.NO_CHILDREN_FOR_EPHEMERALS:
        parent = parent_of(path)
        return InputError(f"{path}: {parent} is ephemeral and can have no children")
    if refusal.code == Code.BAD_ARGUMENTS:
        return InvalidPath(f"ZooKeeper takes no path with characters above U+FFFF: {path[:80]!r}")
    return InputError(f"{path}: {refusal}")
