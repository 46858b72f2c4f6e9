"""`anabranch produce` and `anabranch consume`: messages from and to the terminal.

Both use the ordinary Pulsar client, so they work with any server that speaks the protocol, and show
that ours does. Standard output carries messages only; everything else goes to standard error.
"""

import enum
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Annotated

import typer

from anabranch.errors import ConfigError

_DEFAULT_URL = "pulsar://127.0.0.1:6650"
_Url = Annotated[str, typer.Option("--url", help="Address of the server.")]
_Verbose = Annotated[bool, typer.Option("--verbose", help="Show the log of the client library.")]


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
        typer.Option("-m", "--message", help="Text to send; again for more. Else: stdin lines."),
    ] = None,
    url: _Url = _DEFAULT_URL,
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
    """Publish messages; ends with 1 if any was not acknowledged."""
    if message is None and count > 1:
        raise ConfigError("--count repeats -m messages: give at least one -m")
    from anabranch.cli.pulsar_session import PulsarSession

    texts: Iterable[str] = _stdin_lines()
    if message is not None:
        texts = chain.from_iterable(repeat(message, count))
    with PulsarSession(url, timeout_s=timeout, verbose=verbose) as session:
        summary = session.publish(
            topic, texts, key=key, compression=compression.name, batching=batching, rate=rate
        )
    if output is Output.JSON:
        import json

        print(json.dumps(summary.as_json()))
    else:
        print(summary.as_text(), file=sys.stderr)
    raise typer.Exit(summary.exit_code)


def _stdin_lines() -> Iterator[str]:
    if sys.stdin.isatty():
        print("type messages, one per line; Ctrl-D ends", file=sys.stderr)
    for line in sys.stdin:
        yield line.rstrip("\n")


def consume(
    topic: Annotated[str, typer.Argument(help="Topic, short or full name.")],
    subscription: Annotated[
        str, typer.Option("-s", "--subscription", help="Name of the subscription.")
    ],
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Messages to receive before ending.")
    ] = 1,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    url: _Url = _DEFAULT_URL,
    type_: Annotated[
        SubscriptionType, typer.Option("--type", help="How consumers share the subscription.")
    ] = SubscriptionType.EXCLUSIVE,
    position: Annotated[
        Start, typer.Option(help="Where a new subscription begins.")
    ] = Start.LATEST,
    output: Annotated[Output, typer.Option(help="Payload only, or a JSON object.")] = Output.TEXT,
    ack: Annotated[bool, typer.Option(help="Acknowledge what was printed.")] = True,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Give up after so many seconds without a message.")
    ] = None,
    verbose: _Verbose = False,
) -> None:
    """Receive messages; ends with 1 if fewer came than were wanted."""
    from anabranch.cli.pulsar_session import PulsarSession

    with PulsarSession(url, verbose=verbose) as session:
        summary = session.receive(
            topic,
            subscription,
            number=None if follow else number,
            consumer_type=type_.value,
            earliest=position is Start.EARLIEST,
            as_json=output is Output.JSON,
            acknowledge=ack,
            idle_s=timeout,
        )
    if summary.exit_code:
        print(summary.as_text(), file=sys.stderr)
    raise typer.Exit(summary.exit_code)
