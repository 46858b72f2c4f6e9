"""What planning asks the admin interface: which topics, which partitions, which ledgers.

It blocks, as everything does that Spark calls when it plans. Nothing is changed through it but
subscriptions that a query was told to keep.
"""

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from anabranch.errors import AnabranchError, NotFound, Unreachable
from anabranch.ids import TopicName, encode_segment
from pyspark_anabranch.limits import WEB_ANSWER_BYTES_MAX, WEB_TIMEOUT_S
from pyspark_anabranch.places import BEGINNING, Place
from pyspark_anabranch.topic_map import TopicMap


class AdminRefused(AnabranchError):
    """The admin interface answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AdminView:
    """The admin interface at one address."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._token = token
        self.requests = 0
        """How many were sent."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the JSON of its answer, None if that is empty.

        Raises:
            Unreachable: if nobody answers.
            NotFound: if there is no such thing.
            AdminRefused: if the answer is another error.
        """
        self.requests += 1
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(
            f"{self._url}/admin/v2/{path}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=WEB_TIMEOUT_S) as answer:
                content = answer.read(WEB_ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                text = f"{method} {path}: {error.code} {_reason(error.read(4096))}"
            raise NotFound(text) if error.code == 404 else AdminRefused(error.code, text) from None
        except OSError as error:
            raise Unreachable(
                f"nobody answers at {self._url}, which should be the admin interface "
                f"(option adminUrl): {error}"
            ) from None
        return json.loads(content) if content else None

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """The partitions of a topic, or the topic itself if it has none.

        Raises:
            NotFound: if there is no such topic.
        """
        if topic.partition >= 0:
            return [topic]
        count = self.ask("GET", f"{_path(topic)}/partitions")["partitions"]
        if count == 0:
            return [topic]
        return [TopicName.parse(f"{topic}-partition-{index}") for index in range(count)]

    def topics_of(self, namespace: str) -> list[str]:
        """The full names of the persistent topics of a namespace, partitions among them."""
        return sorted(self.ask("GET", f"persistent/{namespace}"))

    def map_of(self, topic: TopicName) -> TopicMap:
        """Which entries a topic has.

        Raises:
            NotFound: if there is no such topic.
        """
        stats = self.ask("GET", f"{_path(topic)}/internalStats")
        return TopicMap.of_stats(str(topic), stats)

    def maps_of(self, topic: TopicName, *, partitioned: bool) -> dict[str, TopicMap]:
        """Which entries a topic or each of its partitions has, asked with one request.

        Raises:
            NotFound: if there is no such topic.
        """
        if not partitioned:
            return {str(topic): self.map_of(topic)}
        stats = self.ask("GET", f"{_path(topic)}/partitioned-internalStats")
        return {
            name: TopicMap.of_stats(name, each)
            for name, each in sorted(stats["partitions"].items(), key=_partition_of)
        }

    def place_at(self, topic: TopicName, time_ms: int, known: TopicMap) -> Place:
        """Before the first message that was published at a time or later."""
        found = self.ask("GET", f"{_path(topic)}/messageid/{time_ms}")
        ledger_id, entry_id = int(found["ledgerId"]), int(found["entryId"])
        if ledger_id < 0 or entry_id < 0:
            return known.start
        return min(Place(ledger_id, entry_id), known.end)

    def removes_duplicates(self, topic: TopicName) -> bool:
        """Whether the broker stores what is sent again only once."""
        status = self.ask("GET", f"{_path(topic)}/stats")["deduplicationStatus"]
        return bool(status == "Enabled")

    def keep_subscription(self, topic: TopicName, name: str, place: Place) -> None:
        """Create a durable subscription before a place, unless there is one of this name."""
        where = {"ledgerId": place.ledger_id, "entryId": place.entry_id}
        if place == BEGINNING:
            where = {"ledgerId": -1, "entryId": -1}
        try:
            self.ask("PUT", f"{_path(topic)}/subscription/{quote(name, safe='')}", where)
        except AdminRefused as error:
            if error.status != 409:
                raise

    def acknowledged(self, topic: TopicName, name: str) -> Place | None:
        """Up to where a subscription is acknowledged; None if there is no such subscription."""
        found = self.ask("GET", f"{_path(topic)}/internalStats")["cursors"].get(name)
        return None if found is None else Place.parse(found["markDeletePosition"])


def _path(topic: TopicName) -> str:
    return f"{topic.domain}/{topic.tenant}/{topic.namespace}/{encode_segment(topic.local)}"


def _partition_of(item: tuple[str, object]) -> int:
    return TopicName.parse(item[0]).partition


def _reason(content: bytes) -> str:
    try:
        return str(json.loads(content)["reason"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace").strip()
