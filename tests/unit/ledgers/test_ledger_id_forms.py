"""Ledger ids as BookKeeper writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.ledgers.id_forms import (
    SHORT_ID_MAX,
    long_form,
    parse_form,
    path_form,
    short_form,
)
from anabranch.limits import LEDGER_ID_MAX


@pytest.mark.goal("core.L13", part="forms", broken_by="short_form_for_every_id")
def test_the_forms_of_known_ids() -> None:
    assert short_form(0) == "00/0000/L0000"
    assert short_form(2147483646) == "21/4748/L3646"
    assert long_form(2147483646) == "000/0000/0021/4748/L3646"
    assert path_form(2147483646) == "21/4748/L3646"
    assert path_form(2147483647) == "000/0000/0021/4748/L3647"
    assert path_form(LEDGER_ID_MAX) == "922/3372/0368/5477/L5807"


@given(st.integers(0, LEDGER_ID_MAX))
def test_every_form_is_read_back(ledger_id: int) -> None:
    forms = [str(ledger_id), long_form(ledger_id), path_form(ledger_id)]
    assert [parse_form(form) for form in forms] == [ledger_id] * 3
    assert (path_form(ledger_id) == long_form(ledger_id)) == (ledger_id > SHORT_ID_MAX)


@pytest.mark.parametrize(
    "text",
    ["", "L7", "-7", "0/0/L7", "00/0000/L000", "21/4748/L3647", str(2**63), "\u0667", "7 "],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no ledger id"):
        parse_form(text)


@pytest.mark.parametrize("ledger_id", [-1, LEDGER_ID_MAX + 1])
def test_impossible_ids_have_no_form(ledger_id: int) -> None:
    for form in (short_form, long_form, path_form):
        with pytest.raises(InputError):
            form(ledger_id)
    with pytest.raises(InputError, match="no short form"):
        short_form(SHORT_ID_MAX + 1)
