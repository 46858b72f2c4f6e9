"""After a fault the drill of brokers waits until the one that was hurt agrees with the others."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.testing import broker_drill
from anabranch.testing.broker_drill import BrokerDrill, BrokerDrillSettings
from anabranch.testing.servers.failures import ServerFailed


class Said:
    """Brokers of which each says who the owner is; None: it does not answer."""

    service_url = "pulsar://127.0.0.1:1"

    def __init__(self, **answers: str | None) -> None:
        self.members = tuple(SimpleNamespace(name=name) for name in answers)
        self._by_name = {member.name: member for member in self.members}
        self._answers = answers

    def owner(self, topic: str, *, asked: Any = ()) -> Any:
        for member in asked or self.members:
            said = self._answers[member.name]
            if said is not None:
                return self._by_name[said]
        return None


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_drill, "_PROGRESS_S_MAX", 0.1)
    monkeypatch.setattr(broker_drill, "_POLL_S", 0.01)


async def wait_for_hurt(folder: Path, **answers: str | None) -> None:
    brokers: Any = Said(**answers)
    drill = BrokerDrill(brokers, BrokerDrillSettings(faults=1, seed=1), folder)
    await drill._wait_until_it_knows(brokers.members[0])


async def test_a_broker_that_alone_takes_itself_for_the_owner_fails_the_drill(
    tmp_path: Path,
) -> None:
    with pytest.raises(ServerFailed, match="hurt: hurt, one: one, two: one"):
        await wait_for_hurt(tmp_path, hurt="hurt", one="one", two="one")


async def test_two_of_one_mind_are_not_all(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="hurt: hurt, one: hurt, two: two"):
        await wait_for_hurt(tmp_path, hurt="hurt", one="hurt", two="two")


async def test_a_broker_that_says_nothing_fails_the_drill(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="hurt: no answer, one: one"):
        await wait_for_hurt(tmp_path, hurt=None, one="one")


async def test_a_broker_that_agrees_is_over_it(tmp_path: Path) -> None:
    await wait_for_hurt(tmp_path, hurt="one", one="one", two="one")


async def test_an_owner_by_right_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await wait_for_hurt(tmp_path, hurt="hurt", one="hurt", two="hurt")
    assert "hurt is the owner again" in capsys.readouterr().err
