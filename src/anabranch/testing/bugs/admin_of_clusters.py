"""Planted bugs of `anabranch.admin`, as far as several brokers are concerned."""

from typing import Any

from anabranch.testing.planted import original, planted

_OWNERS = "anabranch.admin.owners"


@planted("requests_stay_where_they_came", target=f"{_OWNERS}:require_here")
async def requests_stay_where_they_came(call: Any, topic: Any = None) -> None:
    """Nobody looks whether another broker has the topic."""
    del call, topic


@planted("partitions_elsewhere_are_left_out", target=f"{_OWNERS}:_asked")
async def partitions_elsewhere_are_left_out(call: Any, location: str) -> object:
    """Only what this broker has is served."""
    del call, location
    return {}


@planted("bundles_elsewhere_are_not_unloaded", target="anabranch.admin.bundles:require_bundle_here")
async def bundles_elsewhere_are_not_unloaded(call: Any, bundle: Any) -> bool:
    """Of a bundle that this broker has not, nothing is done."""
    return bundle in call.broker.ownership.owned() and await original(
        "bundles_elsewhere_are_not_unloaded"
    )(call, bundle)


@planted("brokers_ask_in_their_own_name", target=f"{_OWNERS}:_credentials")
def brokers_ask_in_their_own_name(call: Any) -> dict[str, str]:
    """A request of a client that showed a certificate is sent on as the broker's own."""
    return dict(call.origin.credentials)
