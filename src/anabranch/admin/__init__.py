"""The web interface: Pulsar's admin REST v2, lookups, health and metrics.

One table of endpoints says method, path, who may and what serves it; routes, the OpenAPI page and
the tests of every endpoint with every role are made from it.
"""

from anabranch.admin.application import WebInterface
from anabranch.admin.served import Served, TopicAddress

__all__ = ["Served", "TopicAddress", "WebInterface"]
