"""What can go wrong around a foreign server, each naming the thing and the remedy."""

from anabranch.errors import AnabranchError


class MissingTool(AnabranchError):
    """A program or an artifact that is needed is not on this machine."""


class FetchFailed(AnabranchError):
    """An artifact could not be fetched, or is not the one that is pinned."""


class ServerFailed(AnabranchError):
    """A server did not become ready, or ended by itself."""


class ToolFailed(AnabranchError):
    """A command-line tool ended with an error or ran out of time."""
