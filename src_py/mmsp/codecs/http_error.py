"""What a provider says when it refuses: one reading of every shape of error object.

The shapes are those of all vendors at once, because gateways pass on each other's errors:

    {"error": {"message", "type", "code", …}}            OpenAI and most imitators, OpenRouter
    {"type": "error", "error": {"type", "message"}}      Anthropic
    [{"error": {"code", "message", "status"}}]           Google, sometimes the only member of a list
    {"code", "error": "text"}                            xAI
    {"error": "word", "error_description": "text"}       whoever gives tokens
    {"detail": …}                                        Mistral, Voyage, FastAPI servers
    {"object": "error", "message", "type", "code"}       older vLLM
    {"base_resp": {"status_code", "status_msg"}}         MiniMax, with HTTP 200
    {"message": …}                                       AWS

No header value but the request's id and the wait asked for is read, and the key is masked wherever
a provider echoes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..errors import ProviderStreamError, UpstreamError
from ..masking import beginning, masked

__all__ = ["Complaint", "complaint", "http_error", "request_id", "stream_error"]

Headers = Iterable[tuple[str, str]]

_LONGEST = 4096  # characters of a provider's own message
_ID = re.compile(r"[!-~]{1,200}")  # of a request

_RETRYABLE_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_RETRYABLE_WORDS = (
    "overloaded", "rate_limit", "server_error", "timeout", "unavailable", "api_error",
    "resource_exhausted", "internal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Complaint:
    """A provider's error object in one form; `type` is its own word for the kind of error."""

    message: str
    code: int | str | None = None
    type: str | None = None

    @property
    def retryable(self) -> bool:
        """Whether trying again makes sense, as far as code and type tell."""
        status = _status(self.code)
        if status is not None:
            return is_retryable(status)
        words = f"{self.code} {self.type}".lower()
        return any(word in words for word in _RETRYABLE_WORDS)


def complaint(answer: Any) -> Complaint | None:
    """The error that a decoded JSON answer reports; None if it reports none."""
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if isinstance(error, dict) and error:
        return _of_object(error)
    if isinstance(error, str) and isinstance(why := answer.get("error_description"), str):
        return Complaint(_text(f"{error}: {why}"), type=_text(error))
    if error:
        said = error if isinstance(error, str) else answer.get("message") or error
        return Complaint(_text(said), *_code_and_type(answer))
    if answer.get("detail"):
        return Complaint(_text(answer["detail"]), *_code_and_type(answer))
    base = answer.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return Complaint(_text(base.get("status_msg") or ""), _code(base["status_code"]))
    if answer.get("object") == "error" or answer.get("type") == "error":
        return _of_object(answer)
    return None


def http_error(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    client: str,
    now: float,
    secrets: tuple[str, ...] = (),
    advice: str = "",
) -> UpstreamError:
    """The error for an answer whose status is not 200.

    `body` may be cut. `now` is the wall clock in seconds since 1970, for waits given as a date;
    `secrets` are masked in everything the provider sent. `advice` is a sentence for the caller.
    """
    fields = {name.lower(): value for name, value in headers}
    answer = masked(_decoded(body), secrets)
    found = complaint(answer) or _bare(answer)
    said = found.message if found else beginning(b" ".join(body.split()), secrets)
    if 300 <= status < 400:
        said = _redirect(fields.get("location", ""))
    told = f"HTTP {status}: {said[:_LONGEST] or 'the provider gave no reason'}"
    return UpstreamError(
        f"{told.rstrip('.')}. {advice}" if advice else told,
        client=client,
        status=status,
        error_type=found.type if found else None,
        request_id=request_id(fields, answer),
        retry_after=_retry_after(fields, now),
        retryable=_asked_to_retry(fields, is_retryable(status)),
        error=answer,
    )


def stream_error(
    found: Complaint, *, client: str, secrets: tuple[str, ...] = ()
) -> ProviderStreamError:
    """The error for a failure that is reported inside a 200 answer; `secrets` are masked in it."""
    message: str = masked(found.message, secrets)
    return ProviderStreamError(
        message[:_LONGEST] or "the provider reported a failure and gave no reason",
        client=client,
        code=masked(found.code, secrets),
        error_type=masked(found.type, secrets),
        retryable=found.retryable,
    )


def is_retryable(status: int) -> bool:
    """Whether an answer with this HTTP status may go better the next time."""
    return status in _RETRYABLE_STATUS


# ---- the error object


def _of_object(error: dict[str, Any]) -> Complaint:
    message = error.get("message") or error.get("detail") or error.get("error") or error
    return Complaint(_text(message), *_code_and_type(error))


def _bare(answer: Any) -> Complaint | None:
    """An object that is an error only because the status says so."""
    if isinstance(answer, dict) and isinstance(message := answer.get("message"), str):
        return Complaint(message, *_code_and_type(answer))
    return None


def _code_and_type(error: dict[str, Any]) -> tuple[int | str | None, str | None]:
    code = _code(error.get("code"))
    if code is None:
        code = _code(error.get("status_code"))
    for word in (error.get("type"), error.get("status"), code):
        if isinstance(word, str) and word and word != "error":
            return code, _text(word)
    return code, None


def _code(value: Any) -> int | str | None:
    if isinstance(value, str):
        return _text(value) or None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _status(code: int | str | None) -> int | None:
    """`code` if it is an HTTP status."""
    if isinstance(code, str):
        code = int(code) if code.isascii() and code.isdigit() and len(code) == 3 else None
    return code if code is not None and 400 <= code < 600 else None


def _text(value: Any) -> str:
    """`value` in words; half characters, which JSON can hold, become question marks."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "what it says is nested too deeply to be shown"
    return text.encode("utf-8", "replace").decode()


# ---- the body and the headers


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _redirect(location: str) -> str:
    try:
        host = urlsplit(location).hostname
    except ValueError:
        host = None
    where = f"to {host!r}" if host else "elsewhere on the same host"
    return f"the endpoint redirects {where}; redirects are not followed: give the final base_url"


def request_id(fields: dict[str, str], answer: Any = None) -> str | None:
    """The provider's id of a request, from the answer's headers (lower-case names) or its body."""
    named = [fields.get(name) for name in ("mmsp-stream-id", "x-request-id", "request-id")]
    named.append(answer.get("request_id") if isinstance(answer, dict) else None)
    return next((each for each in named if _is_id(each)), None)


def _is_id(value: Any) -> bool:
    """Whether it can be looked up in a log, and written into one."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _retry_after(fields: dict[str, str], now: float) -> float | None:
    milliseconds = _number(fields.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = fields.get("retry-after", "")
    seconds = _number(value)
    return _until(value, now) if seconds is None else seconds


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(date: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime  # for this alone, and takes its time

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _asked_to_retry(fields: dict[str, str], otherwise: bool) -> bool:
    return {"true": True, "false": False}.get(fields.get("x-should-retry", "").lower(), otherwise)
