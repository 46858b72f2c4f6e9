"""`anabranch stats`: the figures of topics and namespaces."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.access import AccessOption
from anabranch.cli.admin_places import (
    DEFAULT_WEB_URL,
    Noun,
    Server,
    TopicArgument,
    WebUrlOption,
    administer,
    each_in_turn,
    print_table,
    stats_of,
)
from anabranch.cli.metadata_places import print_fields, print_json
from anabranch.cli.progress import Progress
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.client.admin import AdminClient, TopicStats

app = Noun("Figures of topics and namespaces.")


@app.command("topic")
def topic_stats(server: Server, topic: TopicArgument) -> None:
    """Print what a topic holds, who is connected, and what waits for whom."""
    from anabranch.policies import to_json

    _, found = server.ask(lambda admin: stats_of(admin, topic))
    if server.as_json:
        print_json(to_json(found))
        return
    print_fields(
        {
            "storage bytes": found.storage_size,
            "partitions": len(found.partitions),
            "producers": ", ".join(each.producer_name for each in found.publishers) or "none",
        }
    )
    rows = [
        (name, each.type or "-", each.messages_backlog, each.unacked_messages, len(each.consumers))
        for name, each in sorted(found.subscriptions.items())
    ]
    if rows:
        print_table(("subscription", "type", "waiting", "unacked", "consumers"), rows)


@app.command("internal")
def internal_stats(
    topic: TopicArgument,
    web_url: WebUrlOption = DEFAULT_WEB_URL,
    access: AccessOption = "",
) -> None:
    """Print the ledgers and cursors of a topic as JSON, as the server says it."""
    print_json(administer(web_url, access, lambda admin: admin.topics.internal_stats(topic)))


@app.command("namespace")
def namespace_stats(
    server: Server,
    namespace: Annotated[str, typer.Argument(help="TENANT/NAMESPACE.")] = "public/default",
) -> None:
    """Print one line per topic of a namespace, partitions too."""
    progress = Progress(sys.stderr)

    async def work(admin: "AdminClient") -> list[tuple[str, Any]]:
        names = await admin.topics.names(namespace)
        done = 0

        async def ask(name: str) -> "TopicStats":
            nonlocal done
            found = await admin.topics.stats(name)
            done += 1
            progress.show(f"{done} of {len(names)} topics")
            return found

        try:
            return list(zip(names, await each_in_turn(names, ask), strict=True))
        finally:
            progress.end()

    rows = [_row(name, found) for name, found in server.ask(work)]
    if server.as_json:
        print_json(rows)
        return
    titles = ("topic", "storage_bytes", "producers", "subscriptions", "consumers", "waiting")
    print_table(
        [title.replace("_", " ") for title in titles],
        [
            [row["topic"], row["error"], "", "", "", ""]
            if "error" in row
            else [row[title] for title in titles]
            for row in rows
        ],
    )


def _row(name: str, found: "TopicStats | AnabranchError") -> dict[str, Any]:
    if isinstance(found, AnabranchError):
        return {"topic": name, "error": str(found)}  # gone meanwhile, perhaps
    each = found.subscriptions.values()
    return {
        "topic": name,
        "storage_bytes": found.storage_size,
        "producers": len(found.publishers),
        "subscriptions": len(found.subscriptions),
        "consumers": sum(len(one.consumers) for one in each),
        "waiting": sum(one.messages_backlog for one in each),
    }
