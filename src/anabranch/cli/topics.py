"""`anabranch topics`: making, ending and deleting topics."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.admin_places import (
    ForceOption,
    Noun,
    Server,
    TopicArgument,
    stats_of,
)
from anabranch.cli.metadata_places import DryRunOption

if TYPE_CHECKING:
    from anabranch.client.admin import AdminClient, TopicStats

app = Noun("Topics: list, make, end, unload and delete them.")


@app.command("list")
def list_topics(
    server: Server,
    namespace: Annotated[str, typer.Argument(help="TENANT/NAMESPACE.")] = "public/default",
    non_persistent: Annotated[bool, typer.Option(help="Those that are not stored.")] = False,
) -> None:
    """Print the topics of a namespace; a partitioned one is printed once."""

    async def work(admin: "AdminClient") -> list[str]:
        persistent = not non_persistent
        whole = await admin.topics.names_of_partitioned(namespace, persistent=persistent)
        single = await admin.topics.names(namespace, persistent=persistent)
        known = set(whole)
        alone = [name for name in single if name.rpartition("-partition-")[0] not in known]
        return sorted([*whole, *alone])

    server.names(server.ask(work))


@app.command()
def create(
    server: Server,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(min=0, help="0 for a topic without partitions.")] = 0,
) -> None:
    """Make a topic."""
    server.ask(
        lambda admin: (
            admin.topics.create_partitioned(topic, partitions)
            if partitions
            else admin.topics.create(topic)
        ),
    )
    server.done(f"created {topic}", topic=topic, partitions=partitions)


@app.command()
def partitions(
    server: Server,
    topic: TopicArgument,
    raise_to: Annotated[
        int | None, typer.Option("--raise-to", min=1, help="Give it so many in all.")
    ] = None,
) -> None:
    """Print how many partitions a topic has, or give it more."""

    async def work(admin: "AdminClient") -> int:
        if raise_to is not None:
            await admin.topics.add_partitions(topic, raise_to)
        return await admin.topics.partitions(topic)

    count = server.ask(work)
    server.done(f"{topic} has {count} partitions", topic=topic, partitions=count)


@app.command()
def delete(
    server: Server,
    topic: TopicArgument,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete a topic, with its partitions, subscriptions and messages."""

    async def work(admin: "AdminClient") -> "TopicStats":
        count, found = await stats_of(admin, topic)
        if not dry_run:
            end = admin.topics.delete_partitioned if count else admin.topics.delete
            await end(topic, force=force)
        return found

    found = server.ask(work)
    facts = {
        "topic": topic,
        "subscriptions": sorted(found.subscriptions),
        "storage_bytes": found.storage_size,
        "producers": len(found.publishers),
        "consumers": sum(len(each.consumers) for each in found.subscriptions.values()),
    }
    what = f"{topic}: {found.storage_size} bytes, {len(found.subscriptions)} subscriptions"
    in_use = bool(facts["producers"] or facts["consumers"])
    refused = f"would be refused, in use: {what}" if in_use and not force else ""
    server.deleted(what, dry_run=dry_run, refused=refused, **facts)


@app.command()
def terminate(server: Server, topic: TopicArgument) -> None:
    """End a topic for good: nothing can be published any more, what it holds can be read."""
    last = server.ask(lambda admin: admin.topics.terminate(topic))
    server.done(f"ended {topic} at {last}", topic=topic, last=str(last))


@app.command()
def unload(server: Server, topic: TopicArgument) -> None:
    """Close a topic where it is; whoever uses it opens it again."""
    server.ask(lambda admin: admin.topics.unload(topic))
    server.done(f"unloaded {topic}", topic=topic)


@app.command()
def truncate(server: Server, topic: TopicArgument, dry_run: DryRunOption = False) -> None:
    """Let go of everything that a topic holds: all subscriptions pass over it."""

    async def work(admin: "AdminClient") -> int:
        _, found = await stats_of(admin, topic)
        if not dry_run:
            await admin.topics.truncate(topic)
        return found.storage_size

    held = server.ask(work)
    done = "would let go of" if dry_run else "let go of"
    server.done(f"{done} {held} bytes of {topic}", topic=topic, bytes=held, dry_run=dry_run)
