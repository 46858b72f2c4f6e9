"""Planted bugs of `anabranch.ids`."""

from anabranch.testing.planted import planted


@planted("names_may_be_unprintable", target="anabranch.ids:_refuse_unprintable")
def names_may_be_unprintable(kind: str, name: str) -> None:
    """Blank edges, control characters and any length are let through."""
    del kind, name


@planted("names_may_be_disguised", target="anabranch.ids:_refuse_disguised")
def names_may_be_disguised(kind: str, name: str) -> None:
    """A name may be a way to elsewhere."""
    del kind, name
