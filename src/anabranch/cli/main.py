"""The `anabranch` command: one module per noun, wired together here."""

import sys

import typer

from anabranch import __version__
from anabranch.cli import (
    broker,
    cluster,
    config,
    doctor,
    ledgers,
    managed_ledgers,
    messages,
    metadata,
    migrate,
    namespaces,
    schemas,
    spark,
    standalone,
    stats,
    subscriptions,
    tenants,
    topics,
    verify,
)
from anabranch.errors import AnabranchError

# Plain help: boxes cut long flags and defaults short on a narrow terminal.
# Plain traces: in colour and boxes nobody can search them or send them on.
app = typer.Typer(
    name="anabranch",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(ledgers.app, name="ledgers")
app.add_typer(managed_ledgers.app, name="managed-ledger")
app.add_typer(verify.app, name="verify")
app.add_typer(metadata.app, name="metadata")
app.add_typer(migrate.app, name="migrate")
app.add_typer(tenants.app, name="tenants")
app.add_typer(namespaces.app, name="namespaces")
app.add_typer(topics.app, name="topics")
app.add_typer(subscriptions.app, name="subscriptions")
app.add_typer(schemas.app, name="schemas")
app.add_typer(stats.app, name="stats")
app.add_typer(spark.app, name="spark")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"anabranch {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """A streaming platform whose parts can be replaced while data flows.

    Exit code 0: done; 2: it could not be done, and a line says why. Commands with more of them say
    so in their help.
    """


app.command("standalone")(standalone.standalone)
app.command("broker")(broker.broker)
app.command("doctor")(doctor.doctor)
app.command("produce")(messages.produce)
app.command("consume")(messages.consume)


def run() -> None:
    """Entry point of the installed command. Errors of ours are one line; bugs keep their trace."""
    try:
        app()
    except AnabranchError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2)
