"""Elections, shown on every store that needs no foreign server."""

import pytest

from anabranch.errors import Fenced
from anabranch.metadata.election_machine import Standing
from anabranch.metadata.store import Revision
from anabranch.testing.contracts.coordination import LOCK, Place, until


@pytest.mark.goal("core.M10", part="election", broken_by="follower_never_tries_again")
async def test_a_follower_leads_when_the_leader_is_gone(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    first, second = ash.election(b"ash"), birch.election(b"birch")
    heard: list[Standing] = []
    second.listen(heard.append)
    first.stand()
    await until(lambda: first.leading)
    second.stand()
    await until(lambda: second.standing is Standing.FOLLOWING)
    assert (first.leader, second.leader) == (b"ash", b"ash")
    assert not second.leading
    with pytest.raises(Fenced, match="does not lead"):
        second.guard()
    token, guard = first.token, first.guard()
    await place.kill(ash.store)
    assert not first.leading, "before it was told"
    await until(lambda: first.leading or second.leading)
    leader = first if first.leading else second
    assert leader.token > token
    with pytest.raises(Fenced):
        await ash.store.put("/decree", b"", guard=guard)
    await (await place.join()).store.put("/decree", b"", guard=leader.guard())
    if leader is first:  # its new session was quicker: the next change decides again
        await first.resign()
        await until(lambda: second.leading)
    assert heard[:2] == [Standing.NO_LEADER, Standing.FOLLOWING]
    assert heard[-1] is Standing.LEADING
    assert second.leader == b"birch"


@pytest.mark.goal("core.M10", part="election", broken_by="resigned_leader_stays")
async def test_whoever_resigns_makes_room(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    first, second = ash.election(b"ash"), birch.election(b"birch")
    first.stand()
    await until(lambda: first.leading)
    second.stand()
    await until(lambda: second.standing is Standing.FOLLOWING)
    token = first.token
    await first.resign()
    assert (first.standing, first.leading) == (Standing.NO_LEADER, False)
    await until(lambda: second.leading)
    assert second.token > token
    first.stand()
    await until(lambda: first.standing is Standing.FOLLOWING)
    assert first.leader == b"birch"


@pytest.mark.goal("core.M10", part="election", broken_by="trusts_value_of_other_session")
async def test_a_candidate_does_not_trust_the_node_of_its_earlier_session(place: Place) -> None:
    ash, again = await place.join(), await place.join()
    stale = await ash.store.put(LOCK, b"ash", ephemeral=True)
    election = again.election(b"ash")
    election.stand()
    await until(lambda: election.leading)
    assert election.token > Revision(stale.version.epoch, stale.version.life)
    node = await again.store.get(LOCK)
    assert node is not None
    assert node.stat.created_by_self


async def test_a_followers_leader_changes_its_value(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    election = birch.election(b"birch")
    election.stand()
    await until(lambda: election.leader == b"ash")
    await lock.update_value(b"ash elsewhere")
    await until(lambda: election.leader == b"ash elsewhere")
    assert election.standing is Standing.FOLLOWING
