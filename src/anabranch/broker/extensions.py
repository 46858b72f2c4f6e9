"""How upper layers take part in a broker without the broker knowing them.

A command extension serves wire commands that the broker itself does not; a topic observer is told
when topics come and go. The composition root plugs them in before the broker starts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from anabranch.generated.pulsar_api_pb2 import BaseCommand

if TYPE_CHECKING:
    from anabranch.broker.session import Session
    from anabranch.broker.topic import Topic

CommandHandler = Callable[["Session", BaseCommand], None]


class TopicObserver(Protocol):
    """Told of a topic's life, synchronously, on the loop that owns the topic."""

    def topic_opened(self, topic: "Topic") -> None:
        """The topic is ready to serve."""
        ...

    def topic_closed(self, topic: "Topic") -> None:
        """The topic serves no more in this process."""
        ...


@dataclass(slots=True)
class Extensions:
    """What is plugged into one broker."""

    commands: dict[int, CommandHandler] = field(default_factory=dict)
    """By the number of the command's type."""
    observers: list[TopicObserver] = field(default_factory=list)

    def serve(self, command_type: int, handler: CommandHandler) -> None:
        """Have `handler` serve a command type that nobody serves yet."""
        assert command_type not in self.commands, f"command {command_type} is served already"
        self.commands[command_type] = handler
