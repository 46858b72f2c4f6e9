"""Writes of all sessions that were proposed and have not taken effect. No input or output here.

A client that lost its connection sends again what was not answered. What is still on its way into
the log must not be put there once more: on a slow disk the repeats would crowd out everything else,
and the client would lose its next connection for lack of an answer.
"""

from functools import partial

from anabranch.metadata.local_handle import Answer


class UnderWay:
    """Finds a write again, whichever connection brought it."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, int], Answer] = {}

    def find(self, session: int, number: int) -> Answer | None:
        """The answer that a session's request with this number will get; None if it is not here."""
        return self._answers.get((session, number))

    def add(self, session: int, number: int, answer: Answer) -> None:
        """A request was proposed."""
        if not answer.done():
            self._answers[session, number] = answer
            answer.add_done_callback(partial(self._took_effect, (session, number)))

    def _took_effect(self, request: tuple[int, int], answer: Answer) -> None:
        if self._answers.get(request) is answer:
            del self._answers[request]
