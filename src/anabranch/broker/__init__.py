"""Sessions, topics, subscriptions and dispatch."""

from anabranch.broker.broker import Broker
from anabranch.broker.extensions import Extensions
from anabranch.broker.settings import BrokerSettings

__all__ = ["Broker", "BrokerSettings", "Extensions"]
