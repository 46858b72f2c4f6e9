"""The nodes that the servers of the modelled ZooKeeper agree on. Pure.

Every server has one and brings it forward by the same entries, so that all of them come to the same
results.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from anabranch.metadata.zookeeper.replies import CONTAINER_OWNER, OPEN_ACL, Acl, Code, ZStat
from anabranch.metadata.zookeeper.requests import Flag, WatchKind
from anabranch.testing.zookeeper_model.operations import (
    Check,
    CloseSession,
    Create,
    Delete,
    Multi,
    OpenSession,
    Operation,
    Refuse,
    SetAcl,
    SetData,
)

ANY_VERSION: Final = -1
_EPHEMERAL: Final = (Flag.EPHEMERAL, Flag.EPHEMERAL_SEQUENTIAL)
_NUMBERED: Final = (Flag.SEQUENTIAL, Flag.EPHEMERAL_SEQUENTIAL, Flag.TTL_SEQUENTIAL)
_SYSTEM: Final = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")
_LAST_PLAIN: Final = "\uffff"


class Refused(Exception):
    """An operation that is not carried out."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Happened(NamedTuple):
    """What watches tell."""

    kind: WatchKind
    path: str


Result = None | int | tuple[str, ZStat] | ZStat | list["Result"]
"""Of one operation; a number is the code by which it was refused."""


class Applied(NamedTuple):
    """What came of one entry."""

    result: Result
    happened: list[Happened]


class Node:
    """One node."""

    __slots__ = (
        "acl", "aversion", "children", "creates", "ctime", "czxid",
        "mtime", "mzxid", "owner", "pzxid", "value", "version",
    )  # fmt: skip

    def __init__(
        self, value: bytes, acl: Sequence[Acl], zxid: int, wall_ms: int, owner: int
    ) -> None:
        self.value = value
        self.acl = tuple(acl)
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = wall_ms
        self.version = self.aversion = 0
        self.creates = 0
        """How many children it ever had."""
        self.owner = owner
        self.children: dict[str, None] = {}

    def stat(self) -> ZStat:
        """As clients are told."""
        return ZStat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            2 * self.creates - len(self.children),
            self.aversion,
            self.owner,
            len(self.value),
            len(self.children),
            self.pzxid,
        )


def parent_of(path: str) -> str:
    """The path above."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Refuse a path as the server does."""
    names = path.split("/")[1:]
    good = path == "/" or (
        path.startswith("/")
        and all(name and name not in (".", "..") for name in names)
        and all(" " <= char <= _LAST_PLAIN for char in path)
    )
    if not good:
        raise Refused(Code.BAD_ARGUMENTS)


class Tree:
    """All nodes, at one point of history."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": Node(b"", OPEN_ACL, 0, 0, 0)}
        self._owned: dict[int, dict[str, None]] = {}
        self._session = 0
        self._wall_ms = 0
        self._undo: list[Callable[[], None]] = []
        self._happened: list[Happened] = []
        for path in _SYSTEM:
            self._nodes[path] = Node(b"", OPEN_ACL, 0, 0, 0)
            self._nodes[parent_of(path)].children[path.rpartition("/")[2]] = None

    def node(self, path: str) -> Node:
        """The node at a path, or `Refused`."""
        found = self._nodes.get(path)
        if found is None:
            raise Refused(Code.NO_NODE)
        return found

    def apply(self, zxid: int, session: int, wall_ms: int, operation: Operation) -> Applied:
        """Go on to the next point of history."""
        self.zxid, self._session, self._wall_ms = zxid, session, wall_ms
        self._undo, self._happened = [], []
        result: Result
        try:
            result = self._do(operation)
        except Refused as refused:
            result = refused.code
        return Applied(result, self._happened)

    def _do(self, operation: Operation) -> Result:
        match operation:
            case Create():
                return self._create(operation)
            case Delete(path, version):
                self._delete(path, version)
            case SetData():
                return self._set_data(operation)
            case SetAcl(path, acl, version):
                node = self._in_version(path, version, lambda node: node.aversion)
                _check_acl(acl)
                old = node.acl, node.aversion
                node.acl, node.aversion = acl, node.aversion + 1

                def undo() -> None:
                    node.acl, node.aversion = old

                self._undo.append(undo)
                return node.stat()
            case Check(path, version):
                self._in_version(path, version, lambda node: node.version)
            case Multi(parts):
                return self._multi(parts)
            case CloseSession():
                for path in list(self._owned.get(self._session, ()))[::-1]:
                    self._delete(path, ANY_VERSION)
            case Refuse(code):
                raise Refused(code)
            case OpenSession():
                pass
        return None

    def _multi(self, parts: tuple[Operation, ...]) -> list[Result]:
        done: list[Result] = []
        for number, part in enumerate(parts):
            try:
                done.append(self._do(part))
            except Refused as refused:
                for step in reversed(self._undo):
                    step()
                self._happened = []
                behind = len(parts) - number - 1
                lost: list[Result] = [int(Code.RUNTIME_INCONSISTENCY)] * behind
                return [int(Code.OK)] * number + [refused.code, *lost]
        return done

    def _in_version(self, path: str, version: int, count: Callable[[Node], int]) -> Node:
        node = self.node(path)
        if version not in (ANY_VERSION, count(node)):
            raise Refused(Code.BAD_VERSION)
        return node

    def _create(self, create: Create) -> tuple[str, ZStat]:
        numbered = create.flag in _NUMBERED
        check_path(create.path + "0" if numbered else create.path)
        _check_acl(create.acl)
        above = parent_of(create.path)
        parent = self.node(above)
        path = f"{create.path}{parent.creates:010}" if numbered else create.path
        if path in self._nodes:
            raise Refused(Code.NODE_EXISTS)
        if parent.stat().ephemeral:
            raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = self._session if create.flag in _EPHEMERAL else 0
        if create.flag == Flag.CONTAINER:
            owner = CONTAINER_OWNER
        node = self._nodes[path] = Node(create.value, create.acl, self.zxid, self._wall_ms, owner)
        name, pzxid = path.rpartition("/")[2], parent.pzxid
        parent.children[name] = None
        parent.creates += 1
        parent.pzxid = self.zxid
        if create.flag in _EPHEMERAL:
            self._owned.setdefault(owner, {})[path] = None

        def undo() -> None:
            del self._nodes[path], parent.children[name]
            parent.creates -= 1
            parent.pzxid = pzxid
            self._owned.get(owner, {}).pop(path, None)

        self._undo.append(undo)
        self._happened.append(Happened(WatchKind.CREATED, path))
        return path, node.stat()

    def _delete(self, path: str, version: int) -> None:
        if path == "/":
            raise Refused(Code.BAD_ARGUMENTS)
        node = self._in_version(path, version, lambda node: node.version)
        if node.children:
            raise Refused(Code.NOT_EMPTY)
        parent, name = self._nodes[parent_of(path)], path.rpartition("/")[2]
        pzxid = parent.pzxid
        del self._nodes[path], parent.children[name]
        parent.pzxid = self.zxid
        owned = self._owned.get(node.owner, {})
        mine = path in owned
        owned.pop(path, None)

        def undo() -> None:
            self._nodes[path] = node
            parent.children[name] = None
            parent.pzxid = pzxid
            if mine:
                owned[path] = None

        self._undo.append(undo)
        self._happened.append(Happened(WatchKind.DELETED, path))

    def _set_data(self, wanted: SetData) -> ZStat:
        node = self._in_version(wanted.path, wanted.version, lambda node: node.version)
        old = node.value, node.version, node.mzxid, node.mtime
        node.value, node.version = wanted.value, node.version + 1
        node.mzxid, node.mtime = self.zxid, self._wall_ms

        def undo() -> None:
            node.value, node.version, node.mzxid, node.mtime = old

        self._undo.append(undo)
        self._happened.append(Happened(WatchKind.CHANGED, wanted.path))
        return node.stat()


def _check_acl(acl: Sequence[Acl]) -> None:
    # Nobody has an identity here, and no scheme was set up besides those of every server.
    known = all(
        entry.scheme in ("world", "ip") or (entry.scheme == "digest" and ":" in entry.identity)
        for entry in acl
    )
    if not acl or not known:
        raise Refused(Code.INVALID_ACL)
