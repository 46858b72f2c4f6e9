"""The doors of this machine, for programs that use the SDK and have nobody else to wire them."""

from anabranch.runtime import Runtime


def machine() -> Runtime:
    """Return the doors to the machine this process runs on."""
    from anabranch.runtime.real import real_runtime

    return real_runtime()
