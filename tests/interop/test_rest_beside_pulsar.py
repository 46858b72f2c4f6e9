"""The same REST requests to a real Pulsar and to our server: the same statuses and documents.

Of documents the keys are compared, level by level; values tell of times, ledgers and addresses.
"""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from rest_requests import Request, requests

from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]


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
    for number, request in enumerate(requests()):
        yield f"{number} {request.name}", tell(server, request)


if __name__ == "__main__":
    with pulsar_standalone() as pulsar, anabranch_standalone() as ours:
        for (name, theirs), (_, mine) in zip(answers_of(pulsar), answers_of(ours), strict=True):
            print("same " if theirs == mine else "OTHER", name, theirs.status, mine.status)
            if theirs != mine:
                print("      ", theirs.shape, "\n      ", mine.shape)
