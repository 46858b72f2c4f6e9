"""`anabranch metadata`: serving the metadata store to several processes."""

import os
from typing import TYPE_CHECKING

import typer

from anabranch.cli.standalone import help_of
from anabranch.server.settings import SETTINGS

if TYPE_CHECKING:
    from anabranch.server.metadata_service import MetadataService

app = typer.Typer(
    help="The metadata store: serve it to other processes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def metadata() -> None:
    """The metadata store: serve it to other processes."""


@app.command()
def serve(
    data: str | None = typer.Option(None, help=help_of(SETTINGS["data"])),
    host: str | None = typer.Option(None, help=help_of(SETTINGS["host"])),
    port: int | None = typer.Option(None, help=help_of(SETTINGS["metadata_port"])),
    advertised_address: str | None = typer.Option(
        None, help=help_of(SETTINGS["advertised_address"])
    ),
    log_level: str | None = typer.Option(None, help=help_of(SETTINGS["log_level"])),
    log_format: str | None = typer.Option(None, help=help_of(SETTINGS["log_format"])),
    config: str | None = typer.Option(None, help="TOML file with settings; flags win over it."),
) -> None:
    """Serve the metadata in a data folder in the foreground; Ctrl-C stops it.

    Other processes reach it with `--metadata-url anabranch://HOST:PORT`. Their sessions live on
    over a restart of this one.
    """
    from anabranch.server.settings_sources import load_settings

    flags = {
        "data": data,
        "host": host,
        "metadata_port": port,
        "advertised_address": advertised_address,
        "log_level": log_level,
        "log_format": log_format,
    }
    settings = load_settings(flags=flags, environment=os.environ, config_file=config)
    from anabranch.server.process import run_metadata

    raise typer.Exit(run_metadata(settings, announce=_announce))


def _announce(service: "MetadataService") -> None:
    print(f"anabranch metadata is ready: {service.url}")
    print(f"data is kept in {service.data_place}; Ctrl-C stops the server", flush=True)
