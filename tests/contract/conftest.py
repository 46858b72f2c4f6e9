"""Makes a failed assert inside a shared suite show its values, as one in a test module does."""

import pytest

pytest.register_assert_rewrite("anabranch.testing.contracts")
