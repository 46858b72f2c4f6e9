"""What a setting is: name, type, default, bounds and words, and how a value is read.

Which settings there are is said in `settings` and `security_settings`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

SettingValue = str | int | float | bool
Check = Callable[[str], str | None]
"""Looks at a text and returns what is wrong with it, or None."""

SETTING: Final = "setting"
_TRUE_WORDS: Final = ("true", "yes", "on", "1")
_FALSE_WORDS: Final = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything known about one setting."""

    name: str
    kind: type[str] | type[int] | type[float] | type[bool]
    default: SettingValue
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    check: Check | None = None
    own_flag: str = ""
    """For a setting of one command only, where its name would repeat that of the command."""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.own_flag or "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "ANABRANCH_" + self.name.upper()

    @property
    def allowed(self) -> str:
        """The values it may have, in words."""
        if self.choices:
            return " or ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        noun = "a whole number" if self.kind is int else "a number"
        if self.low is None and self.high is None:
            return noun
        if self.high is None:
            return f"{noun}, at least {self.low:g}"
        assert self.low is not None, f"{self.name} has an upper bound only"
        return f"{noun} from {_plain(self.low)} to {_plain(self.high)}"

    def parse(self, text: str) -> SettingValue:
        """Read a value from a flag or variable.

        Raises:
            ValueError: with the allowed values.
        """
        if self.kind is bool:
            word = text.strip().lower()
            if word not in (*_TRUE_WORDS, *_FALSE_WORDS):
                raise ValueError(self._refusal(text))
            return word in _TRUE_WORDS
        if self.kind is str:
            return self.accept(text)
        try:
            return self.accept(self.kind(text))
        except ValueError:
            raise ValueError(self._refusal(text)) from None

    def accept(self, value: object) -> SettingValue:
        """Return a value of the right type and within the bounds.

        Raises:
            ValueError: with the allowed values.
        """
        if self.kind is float and type(value) is int:
            value = float(value)
        # type() and not isinstance(): a bool is an int to Python, but no port.
        if type(value) is not self.kind:
            raise ValueError(self._refusal(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not (self.low is None or value >= self.low):
                raise ValueError(self._refusal(value))
            if not (self.high is None or value <= self.high):
                raise ValueError(self._refusal(value))
            return value
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                raise ValueError(self._refusal(value))
            if self.check is not None and (wrong := self.check(value)) is not None:
                raise ValueError(f"{value!r} {wrong}")
        assert isinstance(value, SettingValue)
        return value

    def _refusal(self, value: object) -> str:
        return f"{value!r} is not {self.allowed}"


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def setting(
    default: SettingValue,
    help_text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    own_flag: str = "",
) -> Any:
    """Describe a field of a dataclass as a setting."""
    details = {
        "help": help_text,
        "low": low,
        "high": high,
        "choices": choices,
        "check": check,
        "own_flag": own_flag,
    }
    return field(default=default, metadata={SETTING: details})
