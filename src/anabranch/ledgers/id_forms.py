"""How BookKeeper writes ledger ids in paths: short (10 digits) and long (19 digits). Pure.

short   2147483646           21/4748/L3646
long    9223372036854775807  922/3372/0368/5477/L5807
"""

from typing import Final

from anabranch.errors import InputError
from anabranch.limits import LEDGER_ID_MAX

SHORT_ID_MAX: Final = 2**31 - 2
"""Ids up to here have the short form."""


def short_form(ledger_id: int) -> str:
    """The form of ids that fit 31 bits.

    Raises:
        InputError: if this one does not.
    """
    if not 0 <= ledger_id <= SHORT_ID_MAX:
        raise InputError(f"ledger id {ledger_id} has no short form: that ends at {SHORT_ID_MAX}")
    digits = f"{ledger_id:010d}"
    return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def long_form(ledger_id: int) -> str:
    """The form that every id has.

    Raises:
        InputError: if it is no ledger id.
    """
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise InputError(f"ledger id {ledger_id} is not in 0..{LEDGER_ID_MAX}")
    digits = f"{ledger_id:019d}"
    return "/".join((digits[:3], digits[3:7], digits[7:11], digits[11:15], f"L{digits[15:]}"))


def path_form(ledger_id: int) -> str:
    """The form that BookKeeper's default layout uses: short as long as it can be."""
    return short_form(ledger_id) if 0 <= ledger_id <= SHORT_ID_MAX else long_form(ledger_id)


def parse_form(text: str) -> int:
    """The id that a decimal number, a short or a long form stands for.

    Raises:
        InputError: if it is none of them.
    """
    if text.isascii() and text.isdigit() and int(text) <= LEDGER_ID_MAX:
        return int(text)
    digits = text.replace("/", "").replace("L", "")
    if digits.isascii() and digits.isdigit() and int(digits) <= LEDGER_ID_MAX:
        ledger_id = int(digits)
        if text in (long_form(ledger_id), path_form(ledger_id)):
            return ledger_id
    raise InputError(f"{text!r} is no ledger id: write 7, 00/0000/L0007 or the long form")
