"""The asyncio SDK. It knows the platform only from outside."""

from anabranch.client.client import Client
from anabranch.client.connection import BrokerRefused
from anabranch.client.credentials import Basic, Credentials, Token
from anabranch.client.letters import DeadLetters
from anabranch.client.message import EARLIEST, LATEST, Message, MessageId
from anabranch.client.reader import Reader
from anabranch.client.roles import Consumer, Producer
from anabranch.client.routing import KeyHash, Router, Routing
from anabranch.client.settings import (
    AccessMode,
    Batching,
    InitialPosition,
    Schema,
    SubscriptionType,
)
from anabranch.runtime.network import Tls
from anabranch.wire.compression import Compression

__all__ = [
    "EARLIEST",
    "LATEST",
    "AccessMode",
    "Basic",
    "Batching",
    "BrokerRefused",
    "Client",
    "Compression",
    "Consumer",
    "Credentials",
    "DeadLetters",
    "InitialPosition",
    "KeyHash",
    "Message",
    "MessageId",
    "Producer",
    "Reader",
    "Router",
    "Routing",
    "Schema",
    "SubscriptionType",
    "Tls",
    "Token",
]
