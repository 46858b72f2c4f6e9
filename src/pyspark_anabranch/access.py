"""How a query reaches brokers and their admin interface, and who it says it is."""

from dataclasses import dataclass

from anabranch.client.client import Client
from anabranch.client.credentials import Token
from pyspark_anabranch.admin_view import AdminView


@dataclass(frozen=True, slots=True)
class Access:
    """Addresses and a token; travels to the tasks."""

    service_url: str
    admin_url: str
    token: str = ""

    def view(self) -> AdminView:
        """The admin interface."""
        return AdminView(self.admin_url, self.token)

    async def connect(self) -> Client:
        """Connect to a broker.

        Raises:
            Unreachable: if nobody answers.
            BrokerRefused: if the broker does not want this client.
        """
        credentials = Token(self.token) if self.token else None
        return await Client.connect(self.service_url, credentials=credentials)

    def __repr__(self) -> str:
        return f"Access({self.service_url!r}, {self.admin_url!r})"
