"""The topics of a stream, looked at again and again with as few requests as will do."""

from anabranch.ids import TopicName
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.options import Options
from pyspark_anabranch.planning import find_topics
from pyspark_anabranch.topic_map import TopicMap


class Topics:
    """What the options of a query name, new partitions and new topics of a pattern among them."""

    def __init__(self, view: AdminView, options: Options) -> None:
        self._view = view
        self._options = options
        self._partitioned: dict[TopicName, bool] = {}

    def maps(self) -> dict[str, TopicMap]:
        """Which entries each topic and partition has now.

        Raises:
            NotFound: if a topic is not there.
        """
        found: dict[str, TopicMap] = {}
        for topic in self._wholes():
            if topic not in self._partitioned:
                # A topic never becomes partitioned, nor ceases to be.
                self._partitioned[topic] = self._view.partitions(topic) != [topic]
            found |= self._view.maps_of(topic, partitioned=self._partitioned[topic])
        return found

    def _wholes(self) -> list[TopicName]:
        if not self._options["topicsPattern"]:
            return [*self._options["topic"], *self._options["topics"]]
        wholes = [
            TopicName(each.domain, each.tenant, each.namespace, each.partitioned_local)
            for each in find_topics(self._view, self._options)
        ]
        return list(dict.fromkeys(wholes))

    def idle_s(self, interval_s: float) -> float:
        """How long to wait between two looks: the more topics, the longer."""
        wholes = max(1, len(self._partitioned)) + bool(self._options["topicsPattern"])
        return interval_s * wholes
