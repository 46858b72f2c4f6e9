"""`anabranch cluster`: prepare a metadata store for the brokers and bookies of a cluster."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.metadata_places import (
    CredentialsOption,
    DryRunOption,
    OutputOption,
    check_writable,
    opened,
    print_json,
    run,
)
from anabranch.cli.verdicts import Output
from anabranch.ownership.limits import BUNDLES_PER_NAMESPACE, BUNDLES_PER_NAMESPACE_MAX

if TYPE_CHECKING:
    from anabranch.runtime import Runtime
    from anabranch.server.cluster_setup import Done

app = typer.Typer(
    help="Clusters: prepare a metadata store for brokers and bookies.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def cluster() -> None:
    """Clusters: prepare a metadata store for brokers and bookies."""


@app.command()
def init(
    cluster: Annotated[str, typer.Option(help="Name of the cluster.")],
    metadata_url: Annotated[
        str,
        typer.Option(
            envvar="ANABRANCH_METADATA_URL",
            help="The store, such as zk:HOST:PORT/CHROOT or oxia://HOST:PORT/NAMESPACE.",
        ),
    ],
    configuration_metadata_url: Annotated[
        str,
        typer.Option(
            envvar="ANABRANCH_CONFIGURATION_METADATA_URL",
            help="The store for clusters, tenants and policies, if that is another one.",
            show_default=False,
        ),
    ] = "",
    web_service_url: Annotated[
        str, typer.Option(help="Where the cluster is administered, such as http://HOST:8080.")
    ] = "",
    broker_service_url: Annotated[
        str, typer.Option(help="Where its clients connect, such as pulsar://HOST:6650.")
    ] = "",
    bundles: Annotated[
        int,
        typer.Option(
            help="Bundles of the default namespace.", min=1, max=BUNDLES_PER_NAMESPACE_MAX
        ),
    ] = BUNDLES_PER_NAMESPACE,
    credentials: CredentialsOption = "",
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write what brokers and bookies expect to find, as Pulsar's tool does; what is there stays.

    Exit code 0: prepared, now or before; 1: somebody else changed the same meanwhile; 2: the store
    cannot be used; 3: no answer, run it again.
    """
    from anabranch.server.cluster_setup import ClusterSetup, set_up
    from anabranch.server.configuration_store import beside

    wanted = ClusterSetup(cluster, web_service_url, broker_service_url, bundles)
    urls = [metadata_url]
    if configuration_metadata_url not in ("", metadata_url):
        urls.append(configuration_metadata_url)

    async def work(runtime: "Runtime") -> "list[Done]":
        async with AsyncExitStack() as held:
            stores = [
                await held.enter_async_context(
                    opened(url, runtime, credentials, may_be_new=True, only_look=dry_run)
                )
                for url in urls
            ]
            if not dry_run:
                for store in stores:
                    await check_writable(store)
            whole = await beside(urls, stores, runtime, dry_run=dry_run)
            return await set_up(whole, runtime, wanted, dry_run=dry_run)

    done = run(work)
    if output is Output.JSON:
        print_json([{"path": path, "done": what} for path, what in done])
        return
    for path, what in done:
        print(f"{what:9} {path}")
    changed = [path for path, what in done if what != "there"]
    verb = "would be written" if dry_run else "written"
    print(f"cluster {cluster}: {len(changed)} of {len(done)} nodes {verb}")
