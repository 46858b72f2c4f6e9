"""A session lives on over connections that are there for moments only."""

import asyncio

import pytest
from oxia_stand_in import URL, StandIn, StandInChannel

from anabranch import limits
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.runtime.channels import CallFailed, Security

TIMEOUT_S = limits.OXIA_SESSION_TIMEOUT_S_MIN
BACK_AFTER_S = TIMEOUT_S / 50
THERE_S = TIMEOUT_S / 50
RENEWALS = ("KeepAlive", "Write")


class ShakyChannel(StandInChannel):
    """Has no connection when a session is renewed, but soon gets one, for a moment."""

    _there_until_s = 0.0

    async def ready(self) -> None:
        await asyncio.sleep(BACK_AFTER_S)
        self._there_until_s = asyncio.get_running_loop().time() + THERE_S

    async def ask(self, method: str, message: bytes, *, timeout_s: float) -> bytes:
        gone = asyncio.get_running_loop().time() > self._there_until_s
        if gone and method.rpartition("/")[2] in RENEWALS:
            raise CallFailed("UNAVAILABLE", "no connection")
        return await super().ask(method, message, timeout_s=timeout_s)


class ShakyStandIn(StandIn):
    def open(self, address: str, security: Security) -> ShakyChannel:
        del security
        self.channels.append(ShakyChannel(self, address))
        return self.channels[-1]  # type: ignore[return-value]


@pytest.mark.goal("core.M3", part="oxia", broken_by="oxia_sessions_do_not_wait_for_a_connection")
@pytest.mark.timeout(30)
async def test_session_is_renewed_in_the_moments_there_are() -> None:
    cluster = ShakyStandIn(("a:1", "b:1"))
    store = await OxiaStore.open(cluster.runtime(), URL, session_timeout_s=TIMEOUT_S)
    try:
        begun, number = store.session_valid_until, store.session
        await asyncio.sleep(1.5 * TIMEOUT_S)
        assert store.session == number
        assert store.session_valid_until > begun
    finally:
        await store.close()
