"""`Connector`: what the calls of one client share: who it is, how it reaches a URL, how it perseveres."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from .errors import MMSPError, UpstreamConnectionError, UpstreamError, UpstreamTimeoutError
from .masking import also, masked
from .request import HttpRequest
from .settings import Limits, Timeouts
from .transport import Route, TransportError

__all__ = ["Authorization", "Connector", "RetryableError"]

RetryableError = UpstreamError | UpstreamConnectionError | UpstreamTimeoutError

_FIRST_WAIT = 0.5  # s, doubled each time
_DOUBLINGS = 8  # more than the longest wait needs
_LONGEST_WAIT = 8.0  # s, unless the provider asks for more
_LATE = {
    "connect": "No connection to the provider after",
    "first_event": "No content from the provider after",
    "idle": "The provider was silent for",
    "total": "The call was not over after",
}


class Authorization(Protocol):
    """How requests show who sends them, where a header that is known beforehand will not do: a token
    that ends, a signature of the request itself.
    """

    async def authorized(self, call: Any, request: HttpRequest) -> HttpRequest:
        """`request` as it is sent. What has to be fetched for it is fetched by `call`, the `HttpCall`
        that asks, and stops with it.
        """
        ...

    def refused(self, request: HttpRequest) -> bool:
        """The provider answered 401 to it. True when it can be shown something else, once."""
        ...


class Connector:
    """`route` finds how to reach a URL; `secrets` are masked in what providers send back; `lacks` is what
    such endpoints have at the end of their base URL, and this one has not: "/v1"; `refusal` is how the
    client's wire tells of an HTTP error status.
    """

    authorization: Authorization | None = None

    def __init__(
        self,
        *,
        client: str,
        route: Callable[[str], Route],
        timeouts: Timeouts,
        limits: Limits,
        max_retries: int,
        lacks: str = "",
        secrets: tuple[str, ...] = (),
        refusal: Callable[[UpstreamError], MMSPError] = lambda error: error,
    ) -> None:
        self.client = client
        self.route = route
        self.timeouts = timeouts
        self.limits = limits
        self.max_retries = max_retries
        self.lacks = lacks
        self.refusal = refusal
        self.secrets = self._own_secrets = secrets

    def __repr__(self) -> str:
        return f"<Connector of {self.client}>"

    def hide(self, *secrets: str) -> None:
        """Mask these too, instead of those of the last time."""
        self.secrets = also(self._own_secrets, secrets)

    def mask(self, error: MMSPError) -> None:
        """Take the client's secrets out of what a provider made an error say."""
        if self.secrets:
            error.args = tuple(masked(each, self.secrets) for each in error.args)
            for name, value in vars(error).items():
                setattr(error, name, masked(value, self.secrets))

    def advice(self, status: int) -> str:
        """What to do about an HTTP status, where something is known."""
        return f"Does the base_url lack {self.lacks}?" if status == 404 and self.lacks else ""

    def connection_error(self, failure: TransportError) -> UpstreamConnectionError:
        return UpstreamConnectionError(
            f"No answer from the provider: {failure}",
            client=self.client,
            phase=failure.phase,
            retryable=failure.retryable,
        )

    def timed_out(self, phase: str) -> UpstreamTimeoutError:
        seconds: float = getattr(self.timeouts, phase)
        return UpstreamTimeoutError(
            f"{_LATE[phase]} {seconds:g} s. Raise Timeouts({phase}=…) if it may take longer.",
            client=self.client,
            phase=phase,
            seconds=seconds,
        )

    def wait_before_retry(
        self, error: RetryableError, attempt: int, *, answered: bool
    ) -> float | None:
        """Seconds until the next attempt (`attempt` counts from 0), None when there is to be none.

        Of time-outs only the connecting is tried again, and a connection that failed only when not a
        byte of an answer had come.
        """
        retryable = error.retryable
        if isinstance(error, UpstreamTimeoutError):
            retryable = error.phase == "connect"
        elif isinstance(error, UpstreamConnectionError):
            retryable = retryable and not answered
        if not retryable or attempt >= self.max_retries:
            return None
        asked = error.retry_after if isinstance(error, UpstreamError) else None
        if asked is not None and asked > 0:
            return asked if asked <= self.limits.retry_wait else None
        return min(_FIRST_WAIT * 2.0 ** min(attempt, _DOUBLINGS), _LONGEST_WAIT) * random.uniform(
            0.75, 1.0
        )
