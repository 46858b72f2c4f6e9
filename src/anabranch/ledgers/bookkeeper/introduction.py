"""Saying who we are on a new connection to a bookie, before anything else is asked.

Bookies have plug-ins for it. Some are shown a token; BookKeeper's own, `sasl`, takes several
rounds. Of its mechanisms DIGEST-MD5 is spoken here: the bookie sends a challenge, gets a response
that only who knows the password can give, and proves in turn that it knows the password too.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.errors import ConfigError, ProtocolError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.metadata.digest_md5 import DigestMd5
from anabranch.runtime import Entropy

Ask = Callable[[Request], Awaitable[tuple[Status, pb.Response | None]]]

_DISABLED_PLUGIN: Final = "AuthDisabledPlugin"
_SASL_PLUGIN: Final = "sasl"
_SASL_URI: Final = "bookkeeper/bookkeeper"


async def introduce(ask: Ask, bookie: str, settings: BookKeeperSettings, entropy: Entropy) -> None:
    """Show what the settings have for it; nothing, if they have nothing.

    Raises:
        ConfigError: if the bookie does not accept it, or wants something else.
        ProtocolError: if the bookie does not prove that it knows the password.
    """
    if settings.sasl is not None:
        exchange = DigestMd5(*settings.sasl, entropy.token_hex(16), uri=_SASL_URI)
        challenge = await _show(ask, bookie, _SASL_PLUGIN, b"")
        if challenge is None:
            return
        proof = await _show(ask, bookie, _SASL_PLUGIN, exchange.respond(challenge))
        if proof is None:
            raise ProtocolError(f"bookie {bookie} asked for a password, and then for nobody")
        exchange.check(proof)
    elif settings.auth is not None:
        await _show(ask, bookie, *settings.auth)


async def _show(ask: Ask, bookie: str, plugin: str, payload: bytes) -> bytes | None:
    """What the plug-in says to what it is shown; None if the bookie asks nobody who they are."""
    status, response = await ask(frames.authenticate(plugin, payload))
    if status is not Status.OK or response is None:
        raise ConfigError(
            f"bookie {bookie} does not accept the credentials for {plugin}: check them"
        )
    found = response.auth.plugin_name
    if found == _DISABLED_PLUGIN:
        return None
    if found != plugin:
        raise ConfigError(f"bookie {bookie} wants {found!r}, not {plugin!r}")
    return response.auth.payload
