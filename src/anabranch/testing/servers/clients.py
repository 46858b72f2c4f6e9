"""The stock Python client, quiet and always closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar


@contextmanager
def pulsar_client(service_url: str, **options: Any) -> Iterator[Any]:
    """Connect the package index's `pulsar-client`; only its errors are printed."""
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(service_url, logger=quiet, **options)
    try:
        yield client
    finally:
        client.close()
