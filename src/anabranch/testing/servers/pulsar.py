"""Apache Pulsar standalone 5.0.0-M1: broker, bookie and metadata in one JVM."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.java import Java, find_java
from anabranch.testing.servers.limits import SERVER_READY_S_MAX
from anabranch.testing.servers.standalone import Place, Standalone, started

# The pattern holds %X because Pulsar 5 logs its values as context attributes, not in the text.
# With log4j's own shutdown hook Pulsar hangs when asked to end; without it, it ends in a second.
LOG4J_XML: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <Console name="console" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{ISO8601} [%t] %-5level %logger{1} - %msg %X%n%throwable"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="info"><AppenderRef ref="console"/></Root>
  </Loggers>
</Configuration>
"""

OPENED_PACKAGES: Final = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

METADATA_DRIVERS: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"


def jvm_options(java: Java, conf: Path) -> list[str]:
    """Return the options every Pulsar, BookKeeper or ZooKeeper process is started with."""
    return [
        *java.flags,
        "-Djava.net.preferIPv4Stack=true",
        "-Djute.maxbuffer=10485760",
        f"-Dlog4j.configurationFile={conf / 'log4j2.xml'}",
        "-Dlog4j2.is.webapp=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dpulsar.allocator.exit_on_oom=true",
        f"-Dbookkeeper.metadata.bookie.drivers={METADATA_DRIVERS}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={METADATA_DRIVERS}ClientDriver",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
    ]


def java_command(
    folder: Path, *options: str, main: str, without_jars: Sequence[str] = ()
) -> list[str]:
    """Return what starts a class out of Pulsar's jars, with its log settings in `folder`.

    Jars whose names begin like one of `without_jars` are left out.

    Raises:
        MissingTool: if Java or the jars are missing.
    """
    java = find_java()
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "log4j2.xml").write_text(LOG4J_XML)
    jars = [f"{locate('pulsar-jars')}/*"]
    if without_jars:
        every = sorted(locate("pulsar-jars").glob("*.jar"))
        jars = [str(jar) for jar in every if not jar.name.startswith(tuple(without_jars))]
    class_path = ":".join((str(conf), *jars))
    return [str(java.program), *jvm_options(java, conf), *options, "-cp", class_path, main]


def standalone_settings(place: Place) -> dict[str, str]:
    """Return the configuration of a standalone server on loopback."""
    return {
        "clusterName": "standalone",
        "brokerServicePort": str(place.port),
        "webServicePort": str(place.web_port),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        # The embedded bookie reads this file too and refuses loopback without it.
        "allowLoopback": "true",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
    }


@contextmanager
def pulsar_standalone(
    *,
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
    memory: tuple[str, ...] = ("-Xmx1g", "-XX:MaxDirectMemorySize=1g"),
    ready_timeout_s: float = SERVER_READY_S_MAX,
) -> Iterator[Standalone]:
    """Run Apache Pulsar standalone for as long as the body runs.

    Args:
        folder: for data, configuration and log; kept. Without it, a temporary one that only
            leaves the log behind, and only after a failure.
        settings: added to, or put in place of, the lines of `standalone.conf`.
        memory: the JVM's memory options.
        ready_timeout_s: how long until the health check must answer.

    Raises:
        MissingTool: if Java or the jars are missing.
        ServerFailed: if it does not become ready.
    """

    def build(place: Place) -> Standalone:
        conf = place.folder / "standalone.conf"
        lines = standalone_settings(place) | dict(settings or {})
        conf.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        command = [
            *java_command(place.folder, *memory, main="org.apache.pulsar.PulsarStandaloneStarter"),
            *("-c", str(conf)),
            *("--no-functions-worker", "--no-stream-storage"),
            *("--bookkeeper-dir", str(place.data / "bookkeeper")),
            *("--metadata-dir", str(place.data / "metadata")),
        ]
        return Standalone("pulsar", command, place, ready_timeout_s=ready_timeout_s)

    with started("pulsar", build, folder) as server:
        yield server
