"""Pictures that a wire wants inline: their URLs are fetched here, by the call that needs them.

A URL comes from a conversation, perhaps from a stranger, so it is not trusted: only http and https, every
hop and every address it leads to must be public (unless the client allows private ones), the size, the
time and the number of redirects are limited, and what is no picture is refused. No header of the
client's is sent: no key, no `default_headers`.
"""

from __future__ import annotations

import base64
import ipaddress
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urljoin, urlsplit

from .errors import InvalidMessageError, MMSPError, UpstreamError
from .http_call import Fetched, HttpCall
from .request import HttpRequest, shown_url
from .settings import Limits
from .transport import Route
from .transport.addresses import PRIVATE, is_public
from .types import UniMessage

__all__ = ["PictureFetcher"]

_HEADERS = (("Accept", "image/*"),)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNSAID = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_GUESS = "image/jpeg"
_NOT_YET = "data:image/png;base64,"


class PictureFetcher:
    """Fetches for one client. `route` finds how to reach a URL under the client's rules."""

    def __init__(
        self,
        *,
        client: str,
        limits: Limits,
        route: Callable[[str], Route],
        allow_private: bool,
    ) -> None:
        self._client = client
        self._limits = limits
        self._route = route
        self._allow_private = allow_private

    def check(self, urls: Sequence[str], messages: Sequence[UniMessage]) -> Mapping[str, str]:
        """What can be said without a network. Raises `InvalidMessageError`; returns stand-ins."""
        for url in urls:
            try:
                self._request(url)
            except ValueError as error:
                raise self._refused(url, str(error), messages) from None
        return dict.fromkeys(urls, _NOT_YET)

    async def fetch(
        self, call: HttpCall, urls: Sequence[str], messages: Sequence[UniMessage]
    ) -> Mapping[str, str]:
        """The `data:` URL of each. Raises `InvalidMessageError` for what cannot be had."""
        found: dict[str, str] = {}
        for url in urls:
            late = self._refused(url, f"no answer in {self._limits.image_seconds:g} s", messages)
            try:
                with call.limited(self._limits.image_seconds, late):
                    found[url] = await self._one(call, url)
            except (MMSPError, ValueError) as error:
                raise self._refused(url, str(error), messages) from None
        return found

    async def _one(self, call: HttpCall, url: str) -> str:
        where = url
        for _ in range(self._limits.image_redirects + 1):
            try:
                fetched = await call.fetch(
                    self._request(where), route=self._route(where), limit=self._limits.image_bytes
                )
            except UpstreamError as error:
                where = _redirected(call, error, where)
            else:
                return _data_url(fetched, where)
        raise ValueError(
            f"more than {self._limits.image_redirects} redirects (Limits.image_redirects)"
        )

    def _request(self, url: str) -> HttpRequest:
        request = HttpRequest("GET", url, _HEADERS)  # raises for what is no http(s) URL
        parts = urlsplit(url)
        if parts.username is not None:
            raise ValueError(
                "a picture's URL may not hold a user and password: fetch it yourself and give a data: URL"
            )
        if not self._allow_private and _is_private(parts.hostname or ""):
            raise ValueError(f"{parts.hostname} is {PRIVATE}")
        return request

    def _refused(self, url: str, why: str, messages: Sequence[UniMessage]) -> InvalidMessageError:
        index, place = _place(url, messages)
        if PRIVATE in why:
            why += "; a client made with allow_private_image_urls=True fetches those too"
        return InvalidMessageError(
            f"{place}: the picture at {shown_url(url)} cannot be had: {why}",
            client=self._client,
            item_type="image_url",
            message_index=index,
        )


def _redirected(call: HttpCall, error: UpstreamError, url: str) -> str:
    """Where an answer sends us; raises the error if it does not."""
    headers = call.headers
    if error.status not in _REDIRECTS or "location" not in headers:
        raise error
    where = urljoin(url, _location(headers["location"]))
    if url.lower().startswith("https:") and not where.lower().startswith("https:"):
        raise ValueError("it redirects from https to something less")
    return where


def _location(field: str) -> str:
    """A Location as browsers read it: UTF-8 where that is what its bytes are, without blanks around."""
    try:
        return field.encode("latin-1").decode().strip()
    except UnicodeDecodeError:
        return field.strip()


def _data_url(fetched: Fetched, url: str) -> str:
    said = fetched.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said in _UNSAID:
        guess, _ = mimetypes.guess_type(urlsplit(url).path)
        said = guess if guess and guess.startswith("image/") else _GUESS
    if not said.startswith("image/"):
        raise ValueError(f"it is {said}, no picture")
    if not fetched.body:
        raise ValueError("it is empty")
    return f"data:{said};base64,{base64.b64encode(fetched.body).decode()}"


def _is_private(host: str) -> bool:
    """Whether `host` is an address, not a name, and not a public one."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(host)


def _place(url: str, messages: Sequence[UniMessage]) -> tuple[int | None, str]:
    """The first place that names the picture."""
    for index, message in enumerate(messages):
        for at, item in enumerate(message["content_items"]):
            name = f"messages[{index}].content_items[{at}]"
            if item["type"] == "image_url.done" and item["image_url"] == url:
                return index, f"{name}.image_url"
            if item["type"] == "tool_result.done" and url in (images := item.get("images") or []):
                return index, f"{name}.images[{images.index(url)}]"
    return None, "messages"
