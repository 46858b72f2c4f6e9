"""The asyncio SDK. It knows the platform only from outside."""

from anabranch.client.client import Client
from anabranch.client.connection import BrokerRefused
from anabranch.client.consumer import Consumer
from anabranch.client.message import EARLIEST, LATEST, Message, MessageId
from anabranch.client.producer import Producer
from anabranch.client.reader import Reader
from anabranch.client.settings import Batching, InitialPosition, Schema, SubscriptionType
from anabranch.wire.compression import Compression

__all__ = [
    "EARLIEST",
    "LATEST",
    "Batching",
    "BrokerRefused",
    "Client",
    "Compression",
    "Consumer",
    "InitialPosition",
    "Message",
    "MessageId",
    "Producer",
    "Reader",
    "Schema",
    "SubscriptionType",
]
