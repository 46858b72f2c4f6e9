"""`anabranch subscriptions`: making, moving and deleting them, and looking at what waits."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.admin_places import (
    ForceOption,
    Noun,
    Server,
    TopicArgument,
    stats_of,
)
from anabranch.cli.metadata_places import (
    DryRunOption,
    print_json,
    value_json,
    value_text,
)
from anabranch.cli.start_position import FromMessage, FromTime, parse_start
from anabranch.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from anabranch.client import MessageId
    from anabranch.client.admin import AdminClient, Peeked

app = Noun("Subscriptions: make, move and delete them, look at what waits.")
_Subscription = Annotated[str, typer.Argument(help="Name of the subscription.")]
_PLACES = "earliest, latest or LEDGER:ENTRY"


@app.command("list")
def list_subscriptions(server: Server, topic: TopicArgument) -> None:
    """Print the subscriptions of a topic."""
    names = server.ask(lambda admin: admin.subscriptions.names(topic))
    server.names(names)


def _place(text: str) -> "MessageId | int":
    from anabranch.client import EARLIEST, LATEST, MessageId

    start = parse_start(text, now_ms=time.time_ns() // 1_000_000)
    if isinstance(start, FromTime):
        return start.time_ms
    if isinstance(start, FromMessage):
        return MessageId(start.ledger_id, start.entry_id, batch_index=start.batch_index)
    return EARLIEST if start.earliest else LATEST


@app.command()
def create(
    server: Server,
    topic: TopicArgument,
    subscription: _Subscription,
    from_: Annotated[
        str, typer.Option("--from", metavar="START", help=f"Where it begins: {_PLACES}.")
    ] = "latest",
) -> None:
    """Make a subscription."""
    at = _place(from_)
    if isinstance(at, int):
        raise ConfigError(f"--from is {_PLACES} for a new subscription; reset it to a time after")
    server.ask(lambda admin: admin.subscriptions.create(topic, subscription, at))
    server.done(f"created {subscription}", topic=topic, subscription=subscription)


@app.command()
def delete(
    server: Server,
    topic: TopicArgument,
    subscription: _Subscription,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete a subscription with all it remembers."""

    async def work(admin: "AdminClient") -> tuple[int, int] | None:
        found = (await stats_of(admin, topic))[1].subscriptions.get(subscription)
        if not dry_run:
            await admin.subscriptions.delete(topic, subscription, force=force)
        return None if found is None else (found.messages_backlog, len(found.consumers))

    found = server.ask(work)
    facts = {"topic": topic, "subscription": subscription}
    if found is None:
        server.done(f"there is no {subscription} at {topic}", dry_run=dry_run, **facts)
        raise typer.Exit(1)
    backlog, consumers = found
    what = f"{subscription}: {backlog} waiting, {consumers} consumers"
    refused = f"would be refused, in use: {what}" if consumers and not force else ""
    server.deleted(what, dry_run=dry_run, refused=refused, backlog=backlog, **facts)


@app.command()
def skip(
    server: Server,
    topic: TopicArgument,
    subscription: _Subscription,
    messages: Annotated[
        int | None, typer.Option("-n", "--number", min=1, help="How many; else all.")
    ] = None,
) -> None:
    """Pass over messages that wait."""
    server.ask(
        lambda admin: (
            admin.subscriptions.skip_all(topic, subscription)
            if messages is None
            else admin.subscriptions.skip(topic, subscription, messages)
        ),
    )
    count = "everything" if messages is None else f"{messages} messages"
    server.done(f"passed over {count}", topic=topic, subscription=subscription)


@app.command()
def reset(
    server: Server,
    topic: TopicArgument,
    subscription: _Subscription,
    to: Annotated[
        str, typer.Option("--to", metavar="START", help=f"{_PLACES}, a time, or 15m ago.")
    ],
) -> None:
    """Move a subscription to a message or a time."""
    place = _place(to)
    server.ask(lambda admin: admin.subscriptions.reset(topic, subscription, place))
    server.done(f"moved {subscription} to {to}", topic=topic, subscription=subscription)


def _messages(entry: "Peeked") -> "list[Peeked]":
    try:
        return entry.messages()
    except ProtocolError:
        return [entry]  # what is damaged is looked at as it is


@app.command()
def peek(
    server: Server,
    topic: TopicArgument,
    subscription: _Subscription,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many entries.")] = 1,
) -> None:
    """Print what waits, without receiving it; of a batch, which is one entry, each message."""
    from anabranch.client.admin import AdminNotFound

    async def work(admin: "AdminClient") -> "list[Peeked]":
        found: list[Peeked] = []
        for position in range(1, number + 1):
            try:
                found.append(await admin.subscriptions.peek(topic, subscription, position))
            except AdminNotFound:
                break
        return found

    found = server.ask(work)
    singles = [(entry, each) for entry in found for each in _messages(entry)]
    if server.as_json:
        print_json(
            [
                {
                    "id": each.id,
                    "key": each.key,
                    "properties": dict(each.properties),
                    "batch_messages": entry.batch_messages,
                    **value_json(each.data),
                }
                for entry, each in singles
            ]
        )
    else:
        for _, each in singles:
            print(f"{each.id}  {value_text(each.data)}")
    if len(found) < number:
        raise typer.Exit(1)
