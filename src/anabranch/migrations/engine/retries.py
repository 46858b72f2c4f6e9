"""Which errors may pass if the same is tried again. Pure."""

from anabranch.errors import AnabranchError, DiskFull, OutcomeUnknown, SessionExpired


def may_pass(error: AnabranchError) -> bool:
    """Whether a step that can begin anew at any point should be tried again after this.

    A full disk is not waited for: somebody has to make room, and is told so by the failure.
    """
    if isinstance(error, DiskFull):
        return False
    return error.retriable or isinstance(error, OutcomeUnknown | SessionExpired)
