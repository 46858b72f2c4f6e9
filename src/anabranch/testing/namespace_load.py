"""A small load of admin requests that Pulsar's brokers and ours answer alike, and what came of it.

Namespaces are made and given a retention, one write after the other, at a constant rate. Every
acknowledged write is noted, with when it was asked for and when it was answered, and is looked for
later in a store: the documents there are the same, whoever wrote them.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Final

from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime

TENANT: Final = "public"
_POLICIES: Final = f"/admin/policies/{TENANT}"
_REST_S: Final = 0.02
_ANSWER_S_MAX: Final = 120.0
_DONE: Final = 204
_NO_ANSWER: Final = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A write that was acknowledged."""

    namespace: str
    minutes: int | None
    """The retention that was set; None: the namespace was made."""
    asked_s: float
    """By the wall clock."""
    answered_s: float

    @property
    def took_s(self) -> float:
        """How long its writer waited."""
        return self.answered_s - self.asked_s


class NamespaceLoad:
    """Writers, each a thread that sends one request at a time to one broker."""

    def __init__(self, web_ports: Sequence[int], writers: int = 2) -> None:
        self.written: list[Written] = []
        self.answers: dict[int, int] = {}
        """How often each status came that says that a write was not done; 0: no answer came."""
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._write, args=(number, web_ports[number % len(web_ports)]))
            for number in range(writers)
        ]

    def __enter__(self) -> "NamespaceLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Finish what is under way, then end."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def within(self, from_s: float, to_s: float) -> list[Written]:
        """What was acknowledged between two moments of the wall clock."""
        with self._lock:
            return [each for each in self.written if from_s <= each.answered_s <= to_s]

    def _write(self, writer: int, web_port: int) -> None:
        number = 0
        while not self._over.is_set():
            name = f"load-{writer}-{number:06d}"
            number += 1
            if self._ask(web_port, "PUT", name, None):
                time.sleep(_REST_S)
                self._ask(web_port, "POST", name, number)
            time.sleep(_REST_S)

    def _ask(self, web_port: int, method: str, name: str, minutes: int | None) -> bool:
        path = f"/admin/v2/namespaces/{TENANT}/{name}"
        body = None
        if minutes is not None:
            path += "/retention"
            body = json.dumps({"retentionTimeInMinutes": minutes, "retentionSizeInMB": minutes})
        asked_s = time.time()
        status = _status(web_port, method, path, body)
        with self._lock:
            if status == _DONE:
                self.written.append(Written(name, minutes, asked_s, time.time()))
            else:
                self.answers[status] = self.answers.get(status, 0) + 1
        return status == _DONE

    async def lost(self, url: str) -> list[str]:
        """Acknowledged writes that a store does not have, each with what is there instead."""
        store = await open_store(url, real_runtime())
        try:
            found = {
                node.stat.path.rpartition("/")[2]: node.value
                async for node in store.scan(_POLICIES)
            }
        finally:
            await store.close()
        lost: list[str] = []
        for each in self.written:
            document = found.get(each.namespace)
            if document is None:
                lost.append(f"{each.namespace} is not there")
                continue
            kept = (json.loads(document).get("retention_policies") or {}).get(
                "retentionTimeInMinutes"
            )
            if each.minutes is not None and kept != each.minutes:
                lost.append(f"retention of {each.namespace} is {kept}, not {each.minutes}")
        return lost


def _status(web_port: int, method: str, path: str, body: str | None) -> int:
    connection = HTTPConnection("127.0.0.1", web_port, timeout=_ANSWER_S_MAX)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, HTTPException):
        return _NO_ANSWER
    else:
        return answer.status
    finally:
        connection.close()
