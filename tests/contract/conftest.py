"""What the contract tests share.

A failed assert inside a shared suite shows its values, as one in a test module does.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("anabranch.testing.contracts")

if TYPE_CHECKING:
    from anabranch.testing.contracts.coordination import Place


@pytest.fixture(params=["memory", "embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> "AsyncIterator[Place]":
    from anabranch.testing.contracts.coordination import open_place

    async with open_place(request.param, str(tmp_path)) as place:
        yield place
