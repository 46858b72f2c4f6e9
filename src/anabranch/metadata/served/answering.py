"""What a server answers to requests that change nothing: from the state in memory, at once.

Lists that must be of one moment, children and exports, are kept for the connection that asked and
handed out page by page as it asks for more.
"""

from collections.abc import Callable, Iterator

from anabranch import limits
from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.entries import node_of, record_of
from anabranch.metadata.local_handle import Backing
from anabranch.metadata.paths import check_path, is_within, order_key
from anabranch.metadata.served import messages
from anabranch.metadata.store import EventKind
from anabranch.metadata.tree_view import TreeView


class Answering:
    """Reads on behalf of one connection."""

    def __init__(self, backing: Backing, session: int, list_numbers: Iterator[int]) -> None:
        self._backing = backing
        self._session = session
        self._list_numbers = list_numbers
        self._names: dict[int, Iterator[list[str]]] = {}
        self._views: dict[int, TreeView] = {}
        self._used_s: dict[int, float] = {}
        """When each list was last read from, the longest unread first."""
        self._kinds: dict[str, Callable[[pb.Request, pb.Response], None]] = {
            "ping": self._ping,
            "get": self._get,
            "exists": self._exists,
            "children": self._children,
            "scan": self._scan,
            "scan_index": self._scan_index,
            "events_after": self._events_after,
            "export": self._export,
            "next": self._next,
            "drop": self._drop,
        }

    @property
    def lists_kept(self) -> int:
        """How many lists somebody may read on."""
        return len(self._views) + len(self._names)

    def can_answer(self, kind: str) -> bool:
        """Whether a request of this kind is for here."""
        return kind in self._kinds

    def answer(self, request: pb.Request, kind: str) -> pb.Response:
        """Answer a request; an error is an answer, too."""
        tree = self._backing.machine.tree
        response = pb.Response(id=request.id, revision=messages.revision_message(tree.revision))
        try:
            self._kinds[kind](request, response)
        except AnabranchError as error:
            response.error.CopyFrom(messages.error_message(error))
        return response

    def close(self) -> None:
        """Let go of what was kept for the connection."""
        for cursor in list(self._used_s):
            self._let_go(cursor)

    def _ping(self, request: pb.Request, response: pb.Response) -> None:
        """Being answered is the answer. And it comes regularly."""
        self._let_go_of_unread()

    def _get(self, request: pb.Request, response: pb.Response) -> None:
        path = check_path(request.get.path)
        entry = self._backing.machine.tree.entry(path)
        if entry is not None:
            response.node.CopyFrom(messages.node_message(node_of(path, entry, self._session)))

    def _exists(self, request: pb.Request, response: pb.Response) -> None:
        response.exists = self._backing.machine.tree.exists(check_path(request.exists.path))

    def _children(self, request: pb.Request, response: pb.Response) -> None:
        names = self._backing.machine.tree.children(check_path(request.children.path))
        pages = iter(_pages(names))
        response.names.names.extend(next(pages, []))
        if len(response.names.names) < len(names):
            response.names.cursor = self._new_cursor()
            self._names[response.names.cursor] = pages

    def _scan(self, request: pb.Request, response: pb.Response) -> None:
        scan = request.scan
        after = check_path(scan.after) if scan.HasField("after") else None
        page = self._backing.machine.tree.page(check_path(scan.prefix), after)
        response.nodes.nodes.extend(
            messages.node_message(node_of(path, entry, self._session)) for path, entry in page
        )
        response.nodes.more = bool(page)

    def _scan_index(self, request: pb.Request, response: pb.Response) -> None:
        scan, tree = request.scan_index, self._backing.machine.tree
        after = (
            (scan.key, order_key(scan.after_path)) if scan.HasField("after_path") else (scan.key,)
        )
        size_bytes = 0
        for place, path in tree.indexes.page(
            scan.index, after, scan.last if scan.HasField("last") else None
        ):
            entry = tree.entry(path)
            assert entry is not None, "an index names nodes that are there"
            response.nodes.nodes.append(messages.node_message(node_of(path, entry, self._session)))
            response.nodes.more = True
            response.nodes.last_key, response.nodes.last_path = place[0], path
            size_bytes += len(entry.value)
            if size_bytes >= limits.METADATA_PAGE_BYTES_MAX:
                break

    def _events_after(self, request: pb.Request, response: pb.Response) -> None:
        history = self._backing.history
        since = messages.revision_from(request.events_after.since)
        prefix = check_path(request.events_after.prefix)
        found, number = history.events_from(
            history.number_after(since), limits.METADATA_EVENTS_PER_FRAME_MAX
        )
        up_to = found[-1].revision if found else since
        response.events.events.extend(
            messages.event_message(event)
            for event in found
            if is_within(prefix, event.path) or event.kind is EventKind.GAP
        )
        response.events.up_to.CopyFrom(messages.revision_message(up_to))
        response.events.more = number < history.end_number

    def _export(self, request: pb.Request, response: pb.Response) -> None:
        cursor = self._new_cursor()
        view = self._backing.machine.tree.freeze(check_path(request.export.path))
        self._views[cursor] = view
        self._fill_records(cursor, view, response)

    def _next(self, request: pb.Request, response: pb.Response) -> None:
        cursor = request.next.cursor
        if self._used_s.pop(cursor, None) is not None:
            self._used_s[cursor] = self._backing.clock.monotonic_s()
        if cursor in self._views:
            self._fill_records(cursor, self._views[cursor], response)
        elif cursor in self._names:
            page = next(self._names[cursor], [])
            response.names.names.extend(page)
            if page:
                response.names.cursor = cursor
            else:
                self._let_go(cursor)
        else:
            raise NotFound(f"no list {cursor} is kept for this connection: begin the list again")

    def _drop(self, request: pb.Request, response: pb.Response) -> None:
        self._let_go(request.drop.cursor)

    def _let_go(self, cursor: int) -> None:
        self._used_s.pop(cursor, None)
        self._names.pop(cursor, None)
        view = self._views.pop(cursor, None)
        if view is not None:
            self._backing.machine.tree.release(view)

    def _fill_records(self, cursor: int, view: TreeView, response: pb.Response) -> None:
        page = view.next_page()
        response.records.records.extend(
            messages.record_message(record_of(path, entry)) for path, entry in page
        )
        if page:
            response.records.cursor = cursor
        else:
            self._let_go(cursor)

    def _let_go_of_unread(self) -> None:
        """A list costs memory with every change of the tree, and its reader may have gone away."""
        unread_since_s = self._backing.clock.monotonic_s() - limits.METADATA_LIST_IDLE_S_MAX
        for cursor, used_s in list(self._used_s.items()):
            if used_s > unread_since_s:
                break
            self._let_go(cursor)

    def _new_cursor(self) -> int:
        self._let_go_of_unread()
        if self.lists_kept >= limits.METADATA_CURSORS_PER_CONNECTION_MAX:
            raise InputError(
                f"at most {limits.METADATA_CURSORS_PER_CONNECTION_MAX} long lists may be read at "
                "the same time over one connection"
            )
        cursor = next(self._list_numbers)
        self._used_s[cursor] = self._backing.clock.monotonic_s()
        return cursor


def _pages(names: list[str]) -> Iterator[list[str]]:
    page: list[str] = []
    size_bytes = 0
    for name in names:
        page.append(name)
        size_bytes += 4 * len(name) + 8
        if size_bytes >= limits.METADATA_FRAME_BYTES_USUAL:
            yield page
            page, size_bytes = [], 0
    if page:
        yield page
