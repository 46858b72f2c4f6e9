"""The same REST requests to a real Pulsar and to our server: the same statuses and documents.

Of documents the keys are compared, level by level; values tell of times, ledgers and addresses.
"""

import json
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from rest_requests import Request, requests

from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
_N, _X = "namespaces/acme/n", "persistent/acme/n/x"
OTHER_CODES = {
    # What is no value is taken by Pulsar for none at all, or ends in a stack trace.
    'PUT namespaces/acme/m {"bundles":{"numBundles":-1}}': (204, 400),
    'PUT namespaces/acme/b {"bundles":{"boundaries":["x"]}}': (204, 400),
    'PUT namespaces/acme/c {"bundles":{"boundaries":["x"],"numBundles":2}}': (500, 400),
    f'POST {_N}/permissions/r ["fly"]': (204, 400),
    f'POST {_N}/subscriptionTypesEnabled ["Flying"]': (500, 400),
    f'PUT {_N}/schemaCompatibilityStrategy "FLYING"': (204, 400),
    f'POST {_N}/inactiveTopicPolicies {{"inactiveTopicDeleteMode":"fly"}}': (204, 400),
    f"POST {_N}/messageTTL 99999999999": (500, 412),
    f"POST {_N}/maxProducersPerTopic 99999999999": (500, 412),
    'POST schemas/acme/n/x/schema {"type":"FLYING","schema":"","properties":{}}': (500, 422),
    # So these were not created here, and are on Pulsar.
    "GET namespaces/acme/b/bundles": (200, 404),
    "DELETE namespaces/acme/b": (204, 404),
    "DELETE tenants/acme (2)": (409, 204),
    # Whoever asks for what is not there hears so.
    f"DELETE {_X}/permissions/nobody": (204, 412),
    f"GET {_X}/subscription/none/properties": (200, 404),
    f"DELETE {_X}/subscription/none": (204, 404),
}
"""Pulsar's code and ours, by request."""
LESS_IS_SAID = {
    f"GET {_N} (2)",
    f"GET {_N}/backlogQuotaMap",
    f"GET {_X}/stats (2)",
    "GET persistent/acme/n/p/partitioned-stats",
    f"GET {_X}/internalStats",
    "GET clusters/standalone",
}
"""Figures of what is not here (transactions, offloading), names from before, settings of TLS."""
OTHER_CONTENT = {f"GET {_N}/permissions", f"GET {_X}/permissions"}
"""Pulsar has kept a null for what it did not understand."""


class Answer(NamedTuple):
    """What is compared."""

    status: int
    shape: Any
    """Keys of a document, level by level; of a refusal nothing."""


def shape_of(value: Any) -> Any:
    """What a document is made of, without its values."""
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        shapes = [shape_of(inner) for inner in value]
        return shapes[:1]
    return type(value).__name__ if isinstance(value, bool | str) else "number or null"


def tell(server: Standalone, request: Request) -> Answer:
    where = urlsplit(server.web_url)
    assert where.hostname is not None
    connection = HTTPConnection(where.hostname, where.port, timeout=60)
    try:
        headers = {"Content-Type": "application/json"}
        path = f"/admin/v2/{request.path}"
        connection.request(request.method, path, request.body, headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status >= 300:
        return Answer(answer.status, None)
    try:
        return Answer(answer.status, shape_of(json.loads(body)) if body else None)
    except ValueError:
        return Answer(answer.status, body.decode())


def answers_of(server: Standalone) -> Iterator[tuple[str, Answer]]:
    """By the name of each; of one that is made again with its number."""
    times = Counter[str]()
    for request in requests():
        times[request.name] += 1
        again = f" ({times[request.name]})" if times[request.name] > 1 else ""
        yield request.name + again, tell(server, request)


def is_part_of(ours: Any, theirs: Any) -> bool:
    """Whether everything that we say is said by Pulsar too, in the same place and kind."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(key in theirs and is_part_of(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return not ours or not theirs or is_part_of(ours[0], theirs[0])
    return bool(ours == theirs)


@pytest.fixture(scope="module")
def answers() -> list[tuple[str, Answer, Answer]]:
    """Each request, and what Pulsar and our server answer."""
    with pulsar_standalone() as real, anabranch_standalone() as ours:
        both = zip(answers_of(real), answers_of(ours), strict=True)
        return [(name, theirs, mine) for (name, theirs), (_, mine) in both]


@pytest.mark.goal("core.B16", part="policies")
@pytest.mark.goal("core.B16", part="topics")
@pytest.mark.goal("core.B16", part="subscriptions")
def test_the_same_requests_have_the_same_codes(answers: list[tuple[str, Answer, Answer]]) -> None:
    found = {
        name: (theirs.status, mine.status)
        for name, theirs, mine in answers
        if theirs.status != mine.status
    }
    assert found == OTHER_CODES


@pytest.mark.goal("core.B16", part="namespaces")
@pytest.mark.goal("core.B16", part="stats")
def test_the_same_requests_have_the_same_documents(
    answers: list[tuple[str, Answer, Answer]],
) -> None:
    shown = [each for each in answers if each[1].status == each[2].status == 200]
    other = {name for name, theirs, mine in shown if mine.shape != theirs.shape}
    assert other == LESS_IS_SAID | OTHER_CONTENT
    for name, theirs, mine in shown:
        assert name in OTHER_CONTENT or is_part_of(mine.shape, theirs.shape), name
