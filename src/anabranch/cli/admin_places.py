"""What the commands about a cluster share: reaching its web interface, printing, ending."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from anabranch.cli.access import AccessOption, load_access
from anabranch.cli.metadata_places import EXIT_REFUSED, OutputOption, print_json, safe
from anabranch.cli.metadata_places import run as run_to_the_end
from anabranch.cli.verdicts import Output
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.client.admin import AdminClient, TopicStats
    from anabranch.runtime import Runtime

DEFAULT_WEB_URL: Final = "http://127.0.0.1:8080"
_EXIT_CODES: Final = (
    "Exit code 0: done; 1: the server refused; 2: it could not be asked; 3: no answer, look again."
)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
WebUrlOption = Annotated[
    str,
    typer.Option(
        "--web-url", envvar="ANABRANCH_WEB_URL", help="Where the cluster is administered."
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Also if it is in use, or not empty.")]
TopicArgument = Annotated[str, typer.Argument(help="Topic, short or full name.")]
NamespaceArgument = Annotated[str, typer.Argument(help="TENANT/NAMESPACE.")]


class Server:
    """The cluster that a command is about, and how what it says is printed."""

    def __init__(self, web_url: str, access: str, output: Output) -> None:
        self._web_url = web_url
        self._access = access
        self.as_json: Final = output is Output.JSON

    def ask(self, work: "Callable[[AdminClient], Awaitable[T]]") -> T:
        """See `administer`."""
        return administer(self._web_url, self._access, work)

    def names(self, names: Sequence[str]) -> None:
        """Print names, one per line."""
        if self.as_json:
            print_json(list(names))
            return
        for name in names:
            print(safe(name))

    def done(self, done: str, **facts: Any) -> None:
        """Print what was done, or would be."""
        if self.as_json:
            print_json({"done": done, **facts})
            return
        print(done)

    def deleted(self, what: str, *, dry_run: bool, refused: str = "", **facts: Any) -> None:
        """End a command that deletes; `refused` is said of one that only was to be tried."""
        if not dry_run:
            self.done(f"deleted {what}", **facts)
        elif refused:
            self.done(refused, dry_run=True, **facts)
            raise typer.Exit(EXIT_REFUSED)
        else:
            self.done(f"would delete {what}", dry_run=True, **facts)


_OPTIONS_OF_SERVER: Final = (
    Parameter("web_url", Parameter.KEYWORD_ONLY, default=DEFAULT_WEB_URL, annotation=WebUrlOption),
    Parameter("access", Parameter.KEYWORD_ONLY, default="", annotation=AccessOption),
    Parameter("output", Parameter.KEYWORD_ONLY, default=Output.TEXT, annotation=OutputOption),
)


class Noun(typer.Typer):
    """The commands about one kind of thing; the help of each says the exit codes.

    A command with a parameter `server: Server` has the options that say which, and how to print.
    """

    def __init__(self, said: str) -> None:
        super().__init__(
            help=f"{said}\n\n{_EXIT_CODES}", no_args_is_help=True, rich_markup_mode=None
        )

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """See `typer.Typer.command`."""
        register = super().command(name, epilog=_EXIT_CODES, **options)

        def decorate(function: F) -> F:
            register(_with_options_of_server(function))
            return function

        return decorate


def _with_options_of_server(function: Callable[..., Any]) -> Callable[..., Any]:
    known = signature(function)
    if "server" not in known.parameters:
        return function

    @wraps(function)
    def command(*, web_url: str, access: str, output: Output, **others: Any) -> Any:
        return function(server=Server(web_url, access, output), **others)

    own = [each for name, each in known.parameters.items() if name != "server"]
    own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    parameters = [*own, *_OPTIONS_OF_SERVER]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def administer(web_url: str, access: str, work: "Callable[[AdminClient], Awaitable[T]]") -> T:
    """Do something with an admin client; what goes wrong is one line and an exit code."""
    from anabranch.client.admin import AdminClient, AdminRefused

    async def within(runtime: "Runtime") -> T:
        who = load_access(access)
        async with AdminClient(web_url, runtime, credentials=who.credentials, tls=who.tls) as admin:
            try:
                return await work(admin)
            except AdminRefused as error:
                print(f"error: {safe(str(error))}", file=sys.stderr)
                raise typer.Exit(EXIT_REFUSED) from None

    return run_to_the_end(within)


async def each_in_turn(
    names: Sequence[str], ask: "Callable[[str], Awaitable[T]]", *, at_once: int = 8
) -> "list[T | AnabranchError]":
    """Ask for many things, a few at a time, in the order of their names."""
    found: list[T | AnabranchError] = []
    for start in range(0, len(names), at_once):
        answers = await asyncio.gather(
            *(ask(name) for name in names[start : start + at_once]), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, AnabranchError):
                raise answer
            found.append(answer)
    return found


async def stats_of(admin: "AdminClient", topic: str) -> "tuple[int, TopicStats]":
    """How many partitions a topic has, and its figures, of all of them together."""
    count = await admin.topics.partitions(topic)
    ask = admin.topics.partitioned_stats if count else admin.topics.stats
    return count, await ask(topic)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below each other, as wide as need be."""
    texts = [[safe(str(cell)) for cell in row] for row in (titles, *rows)]
    widths = [max(len(row[index]) for row in texts) for index in range(len(titles))]
    for row in texts:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
