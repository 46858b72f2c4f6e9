"""Which broker serves which topics: bundles, their owners, and the way to them.

A namespace is cut into bundles, ranges of the hash of a topic's name. A bundle has at most one
owner, by a lock in the metadata store. The lock keeps brokers out of each other's way; that nothing
is lost or written twice is up to the ledgers, which fence whoever comes too late.
"""

from anabranch.ownership.addresses import BrokerAddress
from anabranch.ownership.bundles import Bundle, NamespaceBundles
from anabranch.ownership.cluster_ownership import ClusterOwnership
from anabranch.ownership.contract import Ownership, SoleOwner, Whereabouts

__all__ = [
    "BrokerAddress",
    "Bundle",
    "ClusterOwnership",
    "NamespaceBundles",
    "Ownership",
    "SoleOwner",
    "Whereabouts",
]
