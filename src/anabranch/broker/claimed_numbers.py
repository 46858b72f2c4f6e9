"""What is believed of numbers and names that clients make up. Pure."""

from collections.abc import Sequence

from anabranch.broker.limits import (
    BATCH_MESSAGES_MAX,
    CLIENT_METADATA_CHARACTERS_MAX,
    CLIENT_NAME_CHARACTERS_MAX,
)
from anabranch.broker.refusals import Refused
from anabranch.generated.pulsar_api_pb2 import KeyValue
from anabranch.wire import ServerError


def believable_messages(claimed: int) -> int:
    """How many messages a batch is taken to hold, whatever its producer says."""
    # Asked for every message; almost all of them say what is believed.
    return (
        claimed if 1 <= claimed <= BATCH_MESSAGES_MAX else min(max(1, claimed), BATCH_MESSAGES_MAX)
    )


def checked_client_name(name: str) -> str:
    """Return the name of a producer or consumer if it is not too long to be kept.

    Raises:
        Refused: if it is.
    """
    if len(name) > CLIENT_NAME_CHARACTERS_MAX:
        raise Refused(
            ServerError.NotAllowedError,
            f"a name has at most {CLIENT_NAME_CHARACTERS_MAX} characters, not {len(name)}",
        )
    return name


def checked_client_metadata(pairs: Sequence[KeyValue]) -> dict[str, str]:
    """Return what a consumer says of itself.

    Raises:
        Refused: if it is too long, as Pulsar refuses it.
    """
    if _is_too_long(pairs):
        raise Refused(
            ServerError.MetadataError,
            f"metadata has a max size of {CLIENT_METADATA_CHARACTERS_MAX} bytes",
        )
    return {pair.key: pair.value for pair in pairs}


def kept_client_metadata(pairs: Sequence[KeyValue]) -> dict[str, str]:
    """What is kept of what a producer says of itself: nothing if it is too long.

    Pulsar takes producers whatever they say.
    """
    return {} if _is_too_long(pairs) else {pair.key: pair.value for pair in pairs}


def _is_too_long(pairs: Sequence[KeyValue]) -> bool:
    size = sum(len(pair.key) + len(pair.value) for pair in pairs)
    return size > CLIENT_METADATA_CHARACTERS_MAX
