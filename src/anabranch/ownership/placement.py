"""Which broker is to have a bundle that nobody has: every broker finds the same one, alone. Pure.

Each bundle ranks the brokers by a hash of both names, and takes the first that has not its full
share of the namespace's bundles yet. So a namespace is spread evenly, and a broker that comes or
goes moves little.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from anabranch.ownership.bundles import Bundle


def place(bundles: Sequence[Bundle], brokers: Sequence[str]) -> dict[Bundle, str]:
    """Give each bundle of a namespace to one of the brokers, of which there is at least one."""
    share = -(-len(bundles) // len(brokers))
    taken: Counter[str] = Counter()
    placed = {}
    for bundle in sorted(bundles):
        ranked = sorted(brokers, key=lambda broker: _rank(bundle, broker))
        chosen = next(broker for broker in ranked if taken[broker] < share)
        taken[chosen] += 1
        placed[bundle] = chosen
    return placed


def _rank(bundle: Bundle, broker: str) -> bytes:
    return blake2b(f"{bundle} {broker}".encode(), digest_size=8).digest()
