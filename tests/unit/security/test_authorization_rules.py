"""Who may do what, by the documents: every right with every kind of role."""

import pytest

from anabranch.errors import NotAuthorized
from anabranch.ids import TopicName
from anabranch.security import Authorization, Caller, Resource, Right
from anabranch.security.authorization import Grants

TOPIC = TopicName.parse("persistent://t/n/orders-partition-3")
OTHER = TopicName.parse("persistent://t/n/other")
FOREIGN = TopicName.parse("persistent://u/n/orders")


class MadeUp:
    """A directory of one tenant and one namespace."""

    def __init__(self, mode="None"):
        self.granted = Grants(
            {"producer": {"produce"}, "consumer": {"consume"}, "both": {"produce", "consume"}},
            {"persistent://t/n/orders": {"of-topic": {"produce"}}},
            {"guarded": {"consumer"}},
            mode,
        )

    async def tenant_admins(self, tenant):
        return {"admin"} if tenant == "t" else set()

    async def grants(self, namespace):
        return self.granted if namespace == "t/n" else Grants()


def judge(mode="None"):
    return Authorization(MadeUp(mode), superuser_roles=["root"], proxy_roles=["proxy", "proxy2"])


async def may(role, right, resource, *, original=None, mode="None"):
    try:
        await judge(mode).check(Caller(role, original), right, resource)
    except NotAuthorized:
        return False
    return True


ALLOWED = {
    Right.KNOWN: {"root", "admin", "producer", "consumer", "both", "of-topic", "nobody"},
    Right.LOOK_UP: {"root", "admin", "producer", "consumer", "both", "of-topic"},
    Right.PRODUCE: {"root", "admin", "producer", "both", "of-topic"},
    Right.CONSUME: {"root", "admin", "consumer", "both"},
    Right.LIST: {"root", "admin", "producer", "consumer", "both", "of-topic"},
    Right.DRAIN: {"root", "admin", "consumer", "both"},
    Right.ADMINISTER: {"root", "admin"},
    Right.SUPERUSER: {"root"},
}


@pytest.mark.goal("core.B18", part="rules", broken_by="what_is_not_forbidden_is_allowed")
@pytest.mark.parametrize("right", ALLOWED)
async def test_every_right_with_every_role(right):
    for role in sorted(ALLOWED[Right.KNOWN]):
        allowed = await may(role, right, Resource.of_topic(TOPIC))
        assert allowed == (role in ALLOWED[right]), (role, right)


@pytest.mark.goal("core.B18", part="rules", broken_by="tenants_are_not_told_apart")
async def test_rights_end_with_the_tenant_and_the_topic():
    for role in ("admin", "producer", "both", "of-topic"):
        assert not await may(role, Right.LOOK_UP, Resource.of_topic(FOREIGN))
    assert not await may("of-topic", Right.PRODUCE, Resource.of_topic(OTHER))
    assert await may("root", Right.PRODUCE, Resource.of_topic(FOREIGN))
    assert not await may("admin", Right.ADMINISTER, Resource())


@pytest.mark.goal("core.B18", part="rules", broken_by="subscriptions_are_for_everybody")
async def test_subscriptions_are_granted_by_name():
    assert await may("consumer", Right.CONSUME, Resource.of_topic(TOPIC, "guarded"))
    assert not await may("both", Right.CONSUME, Resource.of_topic(TOPIC, "guarded"))
    assert await may("both", Right.CONSUME, Resource.of_topic(TOPIC, "free"))
    prefix = {"mode": "Prefix"}
    assert not await may("both", Right.CONSUME, Resource.of_topic(TOPIC, "free"), **prefix)
    assert await may("both", Right.CONSUME, Resource.of_topic(TOPIC, "both-1"), **prefix)


@pytest.mark.goal("core.B18", part="rules", broken_by="proxies_lend_their_power")
async def test_a_proxy_and_who_it_speaks_for_must_both_be_allowed():
    where = Resource.of_topic(TOPIC)
    assert not await may("proxy", Right.PRODUCE, where, original="producer")
    judged = MadeUp()
    judged.granted.namespace["proxy"] = {"produce"}  # type: ignore[index]
    authorization = Authorization(judged, superuser_roles=["root"], proxy_roles=["proxy"])
    await authorization.check(Caller("proxy", "producer"), Right.PRODUCE, where)
    for original in ("consumer", None, "proxy", ""):
        with pytest.raises(NotAuthorized):
            await authorization.check(Caller("proxy", original), Right.PRODUCE, where)
    with pytest.raises(NotAuthorized, match="no proxy"):
        await authorization.check(Caller("producer", "root"), Right.PRODUCE, where)
    with pytest.raises(NotAuthorized, match="'proxy' may not"):
        await authorization.check(Caller("proxy", "root"), Right.SUPERUSER, Resource())
    with pytest.raises(NotAuthorized, match="'proxy' may not"):
        await authorization.check(Caller("proxy", "root"), Right.CONSUME, where)
