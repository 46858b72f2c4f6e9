"""Planted bugs of access rights in copies: what is asked before, and what is left open."""

from anabranch.metadata.store import AccessRight
from anabranch.metadata.transfer.open_copies import Announcement
from anabranch.metadata.zookeeper.open_notes import OpenNotes
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.rights_probe import RightsProbe
from anabranch.testing.planted import planted

_PROBE = "anabranch.metadata.zookeeper.rights_probe:RightsProbe"
_ANNOUNCEMENT = "anabranch.metadata.transfer.open_copies:Announcement"


@planted("rights_are_asked_about_too_late", target=f"{_PROBE}._is_refused")
async def rights_are_asked_about_too_late(self: RightsProbe, right: AccessRight) -> bool:
    """A copy begins although the servers do not know a scheme of its rights."""
    del self, right
    return False


@planted("every_node_counts_as_ours", target=f"{_PROBE}._may_administer")
async def every_node_counts_as_ours(self: RightsProbe, path: str) -> bool:
    """A copy begins although a node of the target does not let us set its rights."""
    del self, path
    return True


@planted("open_copies_leave_no_word", target=f"{_ANNOUNCEMENT}.make")
async def open_copies_leave_no_word(self: Announcement) -> None:
    """Nobody learns of a copy that was killed."""
    del self


@planted("word_of_open_copies_stays", target=f"{_ANNOUNCEMENT}.withdraw")
async def word_of_open_copies_stays(self: Announcement) -> None:
    """A copy that has ended is told of as if it had not."""
    del self


@planted(
    "copies_of_others_are_gone_on_with",
    target="anabranch.metadata.zookeeper.open_notes:OpenNotes._replace",
)
async def copies_of_others_are_gone_on_with(
    self: OpenNotes, path: str, note: bytes, acl: list[Acl]
) -> bool:
    """A copy goes on whose nodes are open to somebody else alone."""
    del self, path, note, acl
    return True
