"""Every call of the admin client, against a server that has Pulsar's admin REST.

    python examples/administer.py --web-url http://127.0.0.1:8080 --url pulsar://127.0.0.1:6650

It works in a tenant of its own, and removes it at the end.
"""

import argparse
import asyncio
import uuid

from anabranch.client import EARLIEST, Client, Schema
from anabranch.client.admin import AdminClient, AdminConflict, AdminRefused, topic_policies
from anabranch.client.admin import namespace_policies as policies
from anabranch.policies import BacklogQuota, RetentionRule


async def make_room(admin: AdminClient, tenant: str) -> str:
    """Make a tenant with a namespace, and decide what counts there."""
    await admin.clusters.check_health()
    clusters = await admin.clusters.names()
    info = await admin.clusters.info(clusters[0])
    print(f"cluster {clusters[0]} is at {info.broker_service_url}")
    assert await admin.clusters.brokers(clusters[0])
    await admin.tenants.create(tenant, clusters=clusters)
    await admin.tenants.update(tenant, clusters=clusters, admin_roles=["boss"])
    assert (await admin.tenants.info(tenant)).admin_roles == ("boss",)
    assert tenant in await admin.tenants.names()
    space = f"{tenant}/orders"
    await admin.namespaces.create(space, bundles=4)
    assert await admin.namespaces.names(tenant) == [space]
    try:
        await admin.namespaces.create(space)
    except AdminConflict as refused:
        print(f"{refused.status}: {refused.reason}")
    return space


async def decide(admin: AdminClient, space: str) -> None:
    """Set policies and let roles in."""
    spaces = admin.namespaces
    rule = RetentionRule(time_minutes=60, size_mb=100)
    await spaces.set_policy(space, policies.RETENTION, rule)
    assert await spaces.policy(space, policies.RETENTION) == rule
    await spaces.set_policy(space, policies.MESSAGE_TTL_S, 3600)
    assert (await spaces.policies(space)).message_ttl_s == 3600
    await spaces.clear_policy(space, policies.MESSAGE_TTL_S)
    await spaces.set_backlog_quota(space, BacklogQuota(limit_size=10**9))
    assert (await spaces.backlog_quotas(space))["destination_storage"].bytes_max == 10**9
    await spaces.clear_backlog_quota(space)
    await spaces.grant(space, "clerk", ["produce", "consume"])
    assert "clerk" in await spaces.permissions(space)
    await spaces.revoke(space, "clerk")


async def look_at_a_topic(admin: AdminClient, url: str, space: str) -> None:
    """Make a topic, look at what it holds, move its subscription, end it."""
    topics, subscriptions, topic = admin.topics, admin.subscriptions, f"{space}/today"
    await topics.create(topic, properties={"owner": "me"})
    await topics.set_properties(topic, {"color": "red"})
    await topics.remove_property(topic, "owner")
    assert await topics.properties(topic) == {"color": "red"}
    await topics.set_policy(topic, topic_policies.MESSAGE_TTL_S, 600)
    assert await topics.policy(topic, topic_policies.MESSAGE_TTL_S) == 600
    await topics.clear_policy(topic, topic_policies.MESSAGE_TTL_S)
    print(await topics.policy_that_counts(topic, topic_policies.RETENTION))
    await subscriptions.create(topic, "desk", at=EARLIEST)
    await subscriptions.set_properties(topic, "desk", {"floor": "2"})
    assert await subscriptions.properties(topic, "desk") == {"floor": "2"}
    async with Client(url) as client:
        producer = await client.producer(topic, batching=None)
        ids = [await producer.send(b"%d" % number) for number in range(5)]
    stats = await topics.stats(topic)
    print(f"{stats.subscriptions['desk'].messages_backlog} messages wait")
    assert await topics.internal_stats(topic)
    peeked = await subscriptions.peek(topic, "desk")
    assert [each.data for each in peeked.messages()] == [b"0"]
    await subscriptions.skip(topic, "desk", 2)
    await subscriptions.reset(topic, "desk", ids[0])
    try:
        await subscriptions.expire(topic, "desk", 3600)
    except AdminRefused as refused:
        print(f"{refused.status}: nothing is that old")
    await subscriptions.skip_all(topic, "desk")
    assert (await topics.last_message_id(topic)).position == ids[-1].position
    await topics.message_id_at(topic, 0)
    await topics.grant(topic, "clerk", ["consume"])
    assert "clerk" in await topics.permissions(topic)
    await topics.revoke(topic, "clerk")
    assert await subscriptions.names(topic) == ["desk"]
    await topics.unload(topic)
    await topics.truncate(topic)
    await topics.terminate(topic)
    await subscriptions.delete(topic, "desk")
    await topics.delete(topic)
    assert not await topics.exists(topic)


async def divide(admin: AdminClient, space: str) -> None:
    """Make a topic with partitions, and give it more."""
    topics, topic = admin.topics, f"{space}/many"
    await topics.create_partitioned(topic, 2)
    await topics.add_partitions(topic, 3)
    assert await topics.partitions(topic) == 3
    assert await topics.names_of_partitioned(space) == [f"persistent://{topic}"]
    assert len(await topics.names(space)) == len(await admin.namespaces.topics(space)) == 3
    assert (await topics.partitioned_stats(topic)).storage_size == 0
    await admin.namespaces.unload(space)
    await admin.namespaces.clear_backlog(space)
    await topics.delete_partitioned(topic)


async def keep_schemas(admin: AdminClient, space: str) -> None:
    """Keep the versions of a schema."""
    schemas, topic = admin.schemas, f"{space}/typed"
    schema = Schema("String")
    await admin.topics.create(topic)
    assert await schemas.add(topic, schema) == 0
    assert await schemas.is_compatible(topic, schema)
    newest = await schemas.get_newest(topic)
    assert await schemas.get_version(topic, 0) == newest
    assert await schemas.versions(topic) == [newest]
    await schemas.delete(topic)
    await admin.topics.delete(topic)


async def main(web_url: str, url: str) -> None:
    """Do all of it."""
    tenant = f"example-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(web_url)
    try:
        space = await make_room(admin, tenant)
        await decide(admin, space)
        await look_at_a_topic(admin, url, space)
        await divide(admin, space)
        await keep_schemas(admin, space)
        await admin.namespaces.delete(space)
        await admin.tenants.delete(tenant)
    finally:
        admin.close()
    print("administered, and nothing is left")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Every call of the admin client.")
    parser.add_argument("--web-url", default="http://127.0.0.1:8080")
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650")
    options = parser.parse_args()
    asyncio.run(main(options.web_url, options.url))
