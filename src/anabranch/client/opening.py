"""Opening several producers or consumers at once: all of them, or none."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.client.attachment import Attachment

if TYPE_CHECKING:
    from anabranch.client.client import Client


async def open_together(client: "Client", attachments: Sequence[Attachment]) -> None:
    """Attach all; if one cannot be, or the caller gives up, none stays.

    Raises:
        BrokerRefused: if a broker does not want one of them.
        Unreachable: if no broker took one of them in time.
    """
    try:
        results = await asyncio.gather(
            *(client.start(each) for each in attachments), return_exceptions=True
        )
    except BaseException:
        for each in attachments:
            each.abandon()
        raise
    for result in results:
        if isinstance(result, BaseException):
            for each in attachments:
                each.abandon()
            raise result
