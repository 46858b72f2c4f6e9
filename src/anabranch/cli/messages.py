"""`anabranch produce` and `anabranch consume`: messages from and to the terminal.

Both use our own client, and work with any server that speaks the protocol. Standard output carries
messages only; everything else goes to standard error.
"""

import asyncio
import enum
import os
import sys
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from anabranch.cli.access import AccessOption, load_access
from anabranch.cli.message_summaries import INTERRUPTED, Published, Received, Wanted
from anabranch.cli.start_position import parse_start
from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.cli.message_session import MessageSession

T = TypeVar("T")
_DEFAULT_URL = "pulsar://127.0.0.1:6650"
_OPEN_TIMEOUT_S = 30.0
_Url = Annotated[str, typer.Option("--url", help="Address of the server.")]
_Verbose = Annotated[bool, typer.Option("--verbose", help="Show the log of the client, too.")]


class Compression(enum.Enum):
    """How payloads are packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"
    ZSTD = "zstd"
    SNAPPY = "snappy"


class SubscriptionType(enum.Enum):
    """How the consumers of a subscription share it."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"
    KEY_SHARED = "key_shared"


class Start(enum.Enum):
    """Where a new subscription begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Output(enum.Enum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def produce(
    topic: Annotated[str, typer.Argument(help="Topic, short or full name.")],
    message: Annotated[
        list[str] | None,
        typer.Option("-m", "--message", help="What to send; again for more. Else: stdin lines."),
    ] = None,
    url: _Url = _DEFAULT_URL,
    access: AccessOption = "",
    key: Annotated[str | None, typer.Option(help="Key of every message.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Send the messages this many times.")] = 1,
    compression: Annotated[
        Compression, typer.Option(help="How payloads are packed.")
    ] = Compression.NONE,
    batching: Annotated[bool, typer.Option(help="Send several messages as one entry.")] = True,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Messages per second at most.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for the server's answer.")
    ] = 30.0,
    output: Annotated[Output, typer.Option(help="How the summary is printed.")] = Output.TEXT,
    verbose: _Verbose = False,
) -> None:
    """Publish messages.

    Exit code 0: all were acknowledged; 1: some were not; 2: nothing could be sent; 130: Ctrl-C,
    after which the messages taken so far are still sent.
    """
    if message is None and count > 1:
        raise ConfigError("--count repeats -m messages: give at least one -m")
    from anabranch.cli.message_input import repeated, stdin_lines

    _refuse_bytes(("TOPIC", topic), ("--key", key))

    async def work() -> Published:
        # What the shell gave, also if it is not text.
        given = None if message is None else [os.fsencode(text) for text in message]
        payloads = stdin_lines() if given is None else repeated(given, count)
        async with _session(url, access, timeout_s=timeout, verbose=verbose) as session:
            return await session.publish(
                topic,
                payloads,
                key=key,
                compression=compression.value,
                batching=batching,
                rate=rate,
            )

    summary = _to_the_end(work())
    if output is Output.JSON:
        import json

        print(json.dumps(summary.as_json()))
    else:
        print(summary.as_text(), file=sys.stderr)
    raise typer.Exit(summary.exit_code)


def _session(url: str, access: str, *, timeout_s: float, verbose: bool) -> "MessageSession":
    from anabranch.cli.message_session import MessageSession

    return MessageSession(url, load_access(access), timeout_s=timeout_s, verbose=verbose)


def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _refuse_bytes(*given: tuple[str, str | None]) -> None:
    """Refuse names and keys that are not text; payloads may be anything.

    Raises:
        ConfigError: naming what is not.
    """
    for name, value in given:
        if value is not None and _is_broken(value):
            raise ConfigError(f"{name} must be UTF-8 text, not {os.fsencode(value)!r}")


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def consume(
    topic: Annotated[str, typer.Argument(help="Topic, short or full name.")],
    subscription: Annotated[
        str | None,
        typer.Option("-s", "--subscription", help="Name of the subscription. Without: only read."),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="Where to read from without a subscription: earliest, latest (default), "
            "LEDGER:ENTRY[:INDEX], a time, or how long ago (15m).",
        ),
    ] = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Messages to receive before ending.")
    ] = 1,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    url: _Url = _DEFAULT_URL,
    access: AccessOption = "",
    type_: Annotated[
        SubscriptionType | None,
        typer.Option("--type", help="How consumers share the subscription (default: exclusive)."),
    ] = None,
    position: Annotated[
        Start | None, typer.Option(help="Where a new subscription begins (default: latest).")
    ] = None,
    output: Annotated[Output, typer.Option(help="Payload only, or a JSON object.")] = Output.TEXT,
    ack: Annotated[bool, typer.Option(help="Acknowledge what was printed.")] = True,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Give up after so many seconds without a message.")
    ] = None,
    verbose: _Verbose = False,
) -> None:
    """Receive messages.

    With a subscription the server remembers what was acknowledged. Without one, messages are only
    read, and nothing is left behind.

    Exit code 0: as many came as were wanted; 1: fewer came; 2: nothing could be received; 130:
    Ctrl-C before all had come. What was printed is acknowledged.
    """
    _check_choices(subscription, from_, type_, position, ack)
    _refuse_bytes(("TOPIC", topic), ("--subscription", subscription))
    start = parse_start(from_ or "latest", now_ms=time.time_ns() // 1_000_000)
    wanted = Wanted(None if follow else number, as_json=output is Output.JSON, idle_s=timeout)

    async def work() -> Received:
        async with _session(url, access, timeout_s=_OPEN_TIMEOUT_S, verbose=verbose) as session:
            if subscription is None:
                return await session.read(topic, start, wanted)
            return await session.receive(
                topic,
                subscription,
                wanted,
                subscription_type=(type_ or SubscriptionType.EXCLUSIVE).value,
                earliest=position is Start.EARLIEST,
                acknowledge=ack,
            )

    summary = _to_the_end(work())
    if summary.exit_code:
        print(summary.as_text(), file=sys.stderr)
    raise typer.Exit(summary.exit_code)


def _check_choices(
    subscription: str | None,
    from_: str | None,
    type_: SubscriptionType | None,
    position: Start | None,
    ack: bool,
) -> None:
    if subscription is not None and from_ is not None:
        raise ConfigError(
            "--from is for reading without a subscription; --position says where a new one begins"
        )
    if subscription is None:
        for name, given in (("--type", type_), ("--position", position), ("--no-ack", not ack)):
            if given:
                raise ConfigError(f"{name} needs a subscription: -s NAME; reading has --from")
