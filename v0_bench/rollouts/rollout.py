"""`Rollout`: a response that remembers how it ended and how long it was."""

from __future__ import annotations


class Rollout(str):
    """The text of one response, usable wherever lm-eval expects a string.

    `finish_reason` is the backend's word for how generation ended ("length": it was cut), `tokens`
    the number of tokens generated; each is None where the backend does not tell.
    """

    finish_reason: str | None
    tokens: int | None

    def __new__(
        cls, text: str, finish_reason: str | None = None, tokens: int | None = None
    ) -> Rollout:
        rollout = super().__new__(cls, text)
        rollout.finish_reason = finish_reason
        rollout.tokens = tokens
        return rollout

    def __reduce__(self) -> tuple[type[Rollout], tuple[str, str | None, int | None]]:
        return Rollout, (str(self), self.finish_reason, self.tokens)


def finish_reasons(responses: list[str]) -> list[str | None]:
    """How each response ended; None for plain strings."""
    return [getattr(response, "finish_reason", None) for response in responses]


def token_counts(responses: list[str]) -> list[int | None]:
    """How many tokens each response has; None for plain strings."""
    return [getattr(response, "tokens", None) for response in responses]
