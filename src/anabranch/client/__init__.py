"""The asyncio SDK. It knows the platform only from outside."""

from anabranch.client.client import Client
from anabranch.client.connection import BrokerRefused
from anabranch.client.consumer import Consumer, Received
from anabranch.client.producer import Producer

__all__ = ["BrokerRefused", "Client", "Consumer", "Producer", "Received"]
