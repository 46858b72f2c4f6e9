"""Sessions, topics, subscriptions and dispatch."""

from anabranch.broker.broker import Broker
from anabranch.broker.extensions import Extensions
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.settings import BrokerSettings
from anabranch.broker.statistics import BrokerStatistics

__all__ = ["Broker", "BrokerSettings", "BrokerStatistics", "Extensions", "Mishaps"]
