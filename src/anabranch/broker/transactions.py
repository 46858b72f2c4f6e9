"""Transactions, which are not served: what whoever asks for one is told.

The words and codes are those of a Pulsar whose transaction coordinator is turned off. A client asks
first where the coordinators are; told there, it fails at once and not by waiting.
"""

from typing import Final

from anabranch.broker.refusals import Refused
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName
from anabranch.wire import ServerError

NOT_ENABLED: Final = "Transactions are not enabled."
NOT_ACKNOWLEDGED: Final = "The transaction is disabled"
NOT_BUFFERED: Final = "Transaction buffer disable!"
COMMANDS: Final = frozenset(
    {
        BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        BaseCommand.NEW_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
        BaseCommand.END_TXN,
    }
)
"""What a client asks a coordinator."""
_COORDINATORS: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")


def refuse_coordinators(topic: TopicName) -> None:
    """Refuse to say where coordinators are; any other topic may be asked for.

    Raises:
        Refused: if the topic stands for the coordinators.
    """
    if topic.partitioned_local == _COORDINATORS.local and topic.tenant == _COORDINATORS.tenant:
        raise Refused(ServerError.NotAllowedError, NOT_ENABLED)
