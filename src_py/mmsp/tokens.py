"""`Tokens`: one token for all calls of a client, fetched by the call that first needs it.

The call fetches it as it fetches anything: whatever stops the call closes that connection at once, and
nothing more is sent. The rules:

- **One fetch at a time.** The first call that needs a token begins a `Renewal`; the others wait for it,
  each of them stoppable by itself.
- **A failure is shared, a stop is not.** Who waited gets the error that the fetch ended with. When the
  call that fetched was stopped, one of those who waited fetches in its place.
- **A token is renewed before its end**, and thrown away when the provider does not take it.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from .codecs.http_error import complaint, stream_error
from .connector import Connector
from .dialects.endpoint import Grant
from .errors import MMSPError, StreamProtocolError
from .http_call import HttpCall
from .request import HttpRequest
from .service_account import ServiceAccount

__all__ = ["Tokens"]

_MOST = 64 * 1024  # bytes of an answer that holds a token


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    value: str
    renew_at: float  # on the monotonic clock

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self.renew_at


class Renewal:
    """One fetch, and who waits for it, on whatever loop."""

    def __init__(self) -> None:
        self.over = False
        self.error: MMSPError | None = None
        self._wake: dict[int, Callable[[], None]] = {}

    async def wait(self, call: HttpCall) -> None:
        """Until it is over. Raises `CallOverError` when `call` ends first, and what it failed with."""
        self._wake[id(call)] = call.wake_soon
        try:
            await call.until(lambda: self.over)
        finally:
            self._wake.pop(id(call), None)
        if self.error is not None:
            raise copy.copy(self.error)

    def end(self) -> None:
        self.over = True  # first: who comes to wait from here on does not
        for wake in list(self._wake.values()):
            wake()


class Tokens:
    """The authorization of a client that has a service account's key (`mmsp.connector.Authorization`)."""

    def __init__(self, account: ServiceAccount, grant: Grant, connector: Connector) -> None:
        self._account = account
        self._grant = grant
        self._connector = connector
        self._token: Token | None = None
        self._before = ""  # the token of before, of which a provider may still tell
        # The one of the moment, changed in single steps; by process, since what a parent fetches when it
        # forks never comes to its child.
        self._renewals: dict[int, Renewal] = {}

    async def authorized(self, call: HttpCall, request: HttpRequest) -> HttpRequest:
        """`request` with a token; as it is, when its caller has put an authorization there."""
        if any(name.lower() == "authorization" for name, _ in request.headers):
            return request
        token = await self._get(call)
        return replace(request, headers=(*request.headers, _shown(token)))

    def refused(self, request: HttpRequest) -> bool:
        """The provider does not take what `request` showed: the next one shows a new token."""
        token = self._token
        if token is not None and _shown(token) in request.headers:
            self._token = None
        return True

    def __repr__(self) -> str:
        return f"<Tokens for {self._account!r}>"

    async def _get(self, call: HttpCall) -> Token:
        while (token := self._token) is None or not token.is_fresh:
            mine = Renewal()
            current = self._renewals.setdefault(os.getpid(), mine)
            if current is mine:
                return await self._renew(call, mine)
            await current.wait(call)
        return token

    async def _renew(self, call: HttpCall, renewal: Renewal) -> Token:
        try:
            token = self._token  # another thread may have been quicker
            if token is None or not token.is_fresh:
                token = self._token = await self._fetch(call)
            return token
        except MMSPError as error:
            error.args = (f"No access token: {error}",)
            renewal.error = copy.copy(error)  # without the traceback, which holds this frame
            raise
        finally:
            self._renewals.pop(os.getpid(), None)
            renewal.end()

    async def _fetch(self, call: HttpCall) -> Token:
        assertion = self._account.assertion(self._grant, time.time())
        self._connector.hide(assertion, self._before)
        asked_at = time.monotonic()
        answer = await call.fetch(self._account.request(assertion), limit=_MOST)
        token = self._read(answer.body, asked_at)
        self._connector.hide(assertion, self._before, token.value)
        self._before = token.value
        return token

    def _read(self, body: bytes, asked_at: float) -> Token:
        """The token in an answer, of which no error shows anything but a complaint."""
        client, secrets = self._connector.client, self._connector.secrets
        answer = _decoded(body)
        if (found := complaint(answer)) is not None:
            raise stream_error(found, client=client, secrets=secrets)
        value = answer.get("access_token") if isinstance(answer, dict) else None
        if (
            not isinstance(value, str)
            or not value.isascii()
            or not value.isprintable()
            or not value
        ):
            raise StreamProtocolError("the answer holds no access_token", client=client)
        lasts = _seconds(answer.get("expires_in"), self._grant.lifetime)
        early = min(self._grant.renew_before, lasts / 2)
        return Token(value, asked_at + lasts - early)


def _shown(token: Token) -> tuple[str, str]:
    return ("Authorization", f"Bearer {token.value}")


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _seconds(value: Any, otherwise: float) -> float:
    """`expires_in`, which some write as a text; what was asked for, where it says nothing."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if math.isfinite(number) and number > 0 else otherwise
