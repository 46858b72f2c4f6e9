"""A real bookie with BookKeeper's own SASL plug-in: only who knows the password is let in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(200)]

PASSWORD = 'se"cr\\et'
JAAS = """Bookie {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_writer="se\\"cr\\\\et";
};
"""


@pytest.fixture(scope="module")
def metadata_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jaas: Path = tmp_path_factory.mktemp("jaas") / "jaas.conf"
    jaas.write_text(JAAS)
    provider = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(
            ensemble.url,
            1,
            settings={
                "bookieAuthProviderFactoryClass": provider,
                "saslJaasClientAllowedIds": "writer",
            },
            java_options=(f"-Djava.security.auth.login.config={jaas}",),
        ):
            yield ensemble.url


async def write_and_read(url: str, ledger_id: int, sasl: tuple[str, str] | None) -> list[bytes]:
    runtime = real_runtime()
    metadata = await open_store(url, runtime)
    settings = BookKeeperSettings(1, 1, 1, sasl=sasl, quorum_wait_s=1)
    store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, settings)
    try:
        await registered(store, 1)
        writer = await store.create(ledger_id)
        await append(writer, b"one", b"two")
        await writer.close()
        return await payloads_of(await store.open(ledger_id))
    finally:
        await store.close()
        await metadata.close()


@pytest.mark.goal("core.L3", part="SASL")
async def test_who_knows_the_password_is_let_in(metadata_url: str) -> None:
    assert await write_and_read(metadata_url, 1000, ("writer", PASSWORD)) == [b"one", b"two"]


@pytest.mark.goal("core.L3", part="SASL")
@pytest.mark.parametrize(
    ("ledger_id", "sasl"),
    [(1001, ("writer", "guess")), (1002, ("stranger", PASSWORD)), (1003, None)],
    ids=["wrong password", "unknown user", "no login"],
)
async def test_nobody_else_is(
    metadata_url: str, ledger_id: int, sasl: tuple[str, str] | None
) -> None:
    # A bookie that lets nobody in would refuse them as well.
    known = await write_and_read(metadata_url, 1000 + ledger_id, ("writer", PASSWORD))
    assert known == [b"one", b"two"]
    with pytest.raises(AnabranchError):
        await write_and_read(metadata_url, ledger_id, sasl)
