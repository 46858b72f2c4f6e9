"""Planted bugs of secrets that show."""

from anabranch.testing.planted import planted


@planted("errors_repeat_urls", target="anabranch.errors:without_user_info")
def errors_repeat_urls(text: str) -> str:
    """An error names the URL it is about, with whatever is in it."""
    return text
