"""Hostile bodies: every endpoint refuses them or understands them, and the server goes on.

`tests/corpus/rest` holds bodies as tools send them. They are mutated as bytes and as JSON; whatever
once broke an endpoint is added there as another file.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.admin.table import ENDPOINTS
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "rest").glob("*.json"))
IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
BODIES_PER_ENDPOINT = 6
ODD: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, 1.5, 1e308, "", "x" * 5000, "\x00", "ü", [], {},
    [[]], {"": ""}, "persistent://a/b/c", "../..", [None], {"limit": {}},
]  # fmt: skip
NAMES = {
    "tenant": "public", "namespace": "default", "topic": "x", "subscription": "s",
    "domain": "persistent", "cluster": "standalone", "role": "r", "key": "k", "value": "v",
    "count": "1", "seconds": "1", "timestamp": "1", "position": "1", "ledger": "0",
    "entry": "0", "version": "0", "bundle": "0x00000000_0x40000000", "broker": "b:1",
    "name": "n", "group": "g", "mostBits": "0", "leastBits": "1",
}  # fmt: skip


def mutated(dice: random.Random) -> bytes:
    """A body of the corpus with something wrong in it, as bytes or as JSON."""
    body = dice.choice(CORPUS).read_bytes()
    if dice.random() < 0.4:
        damaged = bytearray(body)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        return bytes(damaged[: dice.randrange(1, len(damaged) + 1)])
    value = json.loads(body)
    if not isinstance(value, dict) or dice.random() < 0.2:
        return json.dumps(dice.choice(ODD)).encode()
    value[dice.choice([*value, "unknown"])] = dice.choice(ODD)
    return json.dumps(value).encode()


@pytest.mark.goal("core.S3", part="rest", broken_by="bodies_are_believed")
async def test_mutated_bodies_get_an_answer_at_every_endpoint() -> None:
    assert len(CORPUS) >= 10
    dice = random.Random(20_260_117)
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()
    try:
        await call(server.web_app, "/admin/v2/persistent/public/default/x", method="PUT")
        for row in ENDPOINTS:
            if row.method in ("GET", "DELETE"):
                continue
            path = row.path.format(**NAMES)
            for _ in range(BODIES_PER_ENDPOINT):
                body = mutated(dice)
                answer = await call(server.web_app, path, method=row.method, body=body)
                is_off = answer.status == 503 and path.startswith("/admin/v3/transactions")
                assert answer.status < 500 or is_off, (row.method, path, body, answer.body)
        assert (await call(server.web_app, "/admin/v2/brokers/health")).body == b"ok"
    finally:
        await server.close()
