"""Lookups among several brokers: one owner, found by all, and another when that one is gone."""

import pytest
from several_brokers import NAME, Member, SeveralBrokers, settle, several_brokers

from anabranch.errors import ConflictError, Fenced, NotFound
from anabranch.ids import TopicName
from anabranch.ownership.addresses import read_leader, read_owner, read_registration


async def taken(brokers: SeveralBrokers) -> Member:
    """Look the topic up as a client does: ask, and ask on where one is sent."""
    found = await brokers[0].ownership.locate(NAME)
    if not found.is_owner:
        next_one = next(each for each in brokers.members if each.id == found.broker.broker_id)
        found = await next_one.ownership.locate(NAME, authoritative=found.authoritative)
    assert found.is_owner
    await settle()
    return next(each for each in brokers.members if each.id == found.broker.broker_id)


async def test_brokers_and_their_leader_are_registered_as_pulsar_does() -> None:
    async with several_brokers() as brokers:
        ids = sorted(each.id for each in brokers.members)
        assert await brokers.base.children("/loadbalance/brokers") == ids
        node = await brokers.base.get(f"/loadbalance/brokers/{ids[0]}")
        assert node is not None
        assert node.stat.ephemeral
        assert read_registration(node.value).broker_id == ids[0]
        leader = await brokers.base.get("/loadbalance/leader")
        assert leader is not None
        assert read_leader(leader.value) == brokers[0].id
        assert {each.ownership.membership.leader for each in brokers.members} == {brokers[0].id}


async def test_all_find_the_same_owner_whoever_is_asked_first() -> None:
    async with several_brokers() as brokers:
        first = [await each.ownership.locate(NAME) for each in brokers.members]
        assert len({found.broker for found in first}) == 1, "all send to one, or are it"
        owner = await taken(brokers)
        for each in brokers.members:
            found = await each.ownership.locate(NAME)
            assert (found.broker.broker_id, found.is_owner) == (owner.id, True)
            assert each.ownership.owns(NAME) == (each is owner)
        bundle = await brokers.bundle()
        node = await brokers.base.get(bundle.path)
        assert node is not None
        assert node.stat.ephemeral
        assert read_owner(node.value).address == owner.ownership.me


@pytest.mark.goal("core.B14", part="lookup", broken_by="lookup_believes_an_old_answer")
async def test_an_owner_whose_session_ended_is_followed_by_another() -> None:
    async with several_brokers() as brokers:
        owner = await taken(brokers)
        for each in brokers.members:
            await each.ownership.locate(NAME)
        await owner.kill()
        others = [each for each in brokers.members if each is not owner]
        found = await others[0].ownership.locate(NAME)
        assert found.broker.broker_id != owner.id
        assert found.broker.broker_id in [each.id for each in others]


async def test_a_broker_that_does_not_own_a_topic_says_so() -> None:
    async with several_brokers() as brokers:
        owner = await taken(brokers)
        await owner.ownership.require(NAME)
        for each in brokers.members:
            if each is not owner:
                with pytest.raises(Fenced, match=r"not served by this instance.*redo the lookup"):
                    await each.ownership.require(NAME)


async def test_a_topic_that_nobody_has_is_taken_where_a_client_was_sent() -> None:
    async with several_brokers() as brokers:
        await brokers[2].ownership.require(NAME)
        assert brokers[2].ownership.owns(NAME)


async def test_a_broker_that_starts_again_takes_its_bundles_back_at_once() -> None:
    async with several_brokers(1) as brokers:
        owner = await taken(brokers)
        bundle = await brokers.bundle()
        await owner.lose_session()
        assert not owner.ownership.owns(NAME)
        stale = await brokers.base.handle()
        await stale.put(bundle.path, owner.ownership.me.as_owner(), ephemeral=True)
        await settle()
        await owner.ownership.require(NAME)
        assert owner.ownership.owns(NAME)
        await stale.close()
        await settle()
        assert owner.ownership.owns(NAME), "the end of the old session takes nothing away"


@pytest.mark.goal("core.B14", part="lookup", broken_by="lookup_sends_nobody_on")
async def test_an_unloaded_bundle_goes_where_it_is_sent_and_everybody_finds_it_there() -> None:
    async with several_brokers() as brokers:
        owner = await taken(brokers)
        target = next(each for each in brokers.members if each is not owner)
        bundle = await brokers.bundle()
        assert await owner.ownership.begin_unload(bundle, target.id) == target.ownership.me
        with pytest.raises(Fenced, match="is being unloaded"):
            await owner.ownership.require(NAME)
        with pytest.raises(ConflictError, match="is being unloaded"):
            await owner.ownership.locate(NAME)
        await owner.ownership.finish_unload(bundle)
        await settle()
        sent = await owner.ownership.locate(NAME)
        assert (sent.broker, sent.is_owner) == (target.ownership.me, False)
        with pytest.raises(Fenced):
            await owner.ownership.require(NAME)
        await target.ownership.require(NAME)
        await settle()
        for each in brokers.members:
            found = await each.ownership.locate(NAME)
            assert (found.broker, found.is_owner) == (target.ownership.me, True)


async def test_what_cannot_be_unloaded_is_refused_and_stays() -> None:
    async with several_brokers(2) as brokers:
        owner = await taken(brokers)
        bundle = await brokers.bundle()
        other = next(each for each in brokers.members if each is not owner)
        with pytest.raises(NotFound, match="is not owned by"):
            await other.ownership.begin_unload(bundle)
        with pytest.raises(NotFound, match="there is no other broker nowhere:1"):
            await owner.ownership.begin_unload(bundle, "nowhere:1")
        await owner.ownership.require(NAME)


async def test_a_broker_that_leaves_takes_no_more() -> None:
    async with several_brokers(2) as brokers:
        await brokers[0].ownership.leave()
        await settle()
        assert await brokers.base.children("/loadbalance/brokers") == [brokers[1].id]
        found = await brokers[0].ownership.locate(NAME, authoritative=True)
        assert (found.broker.broker_id, found.is_owner) == (brokers[1].id, False)
        with pytest.raises(Fenced):
            await brokers[0].ownership.require(TopicName.parse("another"))
