"""`anabranch broker`: one broker of a cluster. Its flags come from the settings."""

import os
from typing import TYPE_CHECKING, Final

import typer

from anabranch.cli.standalone import describe_flags

if TYPE_CHECKING:
    from anabranch.server.assembly import Standalone

_NOT_OURS: Final = ("data", "metadata_port")


def broker(config: str | None, **flags: str | int | float | bool | None) -> None:
    """Start one broker of a cluster in the foreground; Ctrl-C hands its topics over and stops it.

    It needs `--metadata-url` and `--ledgers-url` of stores that all brokers reach, prepared once
    with `anabranch cluster init`.

    Exit code 0: stopped; 1: a mistake in the program; 2: not started; 3: a store failed; 130: ended
    at once by a second Ctrl-C.
    """
    from anabranch.server.settings_sources import load_server_settings

    settings = load_server_settings(flags=flags, environment=os.environ, config_file=config)
    from anabranch.server.cluster_broker import ClusterBroker, check_shared

    check_shared(settings)
    from anabranch.server.process import run

    raise typer.Exit(run(settings, announce=_announce, kind=ClusterBroker))


describe_flags(broker, _NOT_OURS)


def _announce(server: "Standalone") -> None:
    print(f"anabranch broker is ready: {server.reachable_url}  web {server.reachable_web_url}")
    print(f"data is kept in {server.data_place}; Ctrl-C stops the broker", flush=True)
