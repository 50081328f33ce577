"""`HttpRequest`: what a codec makes and the transport sends; `Target`: where to. Pure data.

Header names and values are checked when it is made, so that no caller's text can end a header line
early; `repr` shows no header, body, query or password, because keys and prompts stand there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["HttpRequest", "Target", "shown_url"]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FORBIDDEN = re.compile(r"[\r\n\0]")


@dataclass(frozen=True, slots=True, repr=False)
class HttpRequest:
    """One request: `url` absolute (http or https), `headers` in order, `body` bytes (empty for GET).

    `owed` is how many items its answer must hold, where that is known: an embedding per input; else 0.

    Raises `ValueError` for a header that HTTP cannot carry or a URL that leads nowhere.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    owed: int = 0

    def __post_init__(self) -> None:
        for name, value in self.headers:
            if not _TOKEN.fullmatch(name):
                raise ValueError(f"{name!r} is not a header name: letters, digits and hyphens only")
            if _FORBIDDEN.search(value):
                raise ValueError(f"the value of header {name!r} holds a line break or a NUL")
            try:
                value.encode("latin-1")
            except UnicodeEncodeError:
                raise ValueError(
                    f"the value of header {name!r} holds a character HTTP cannot carry"
                ) from None
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a request needs an absolute http:// or https:// URL")
        if parts.port == 0 or not _is_host(parts.hostname):  # reading a port that is none raises
            raise ValueError("the request's URL names no host and port that exist")
        if re.search(r"[\x00-\x20\x7f]", self.url):
            raise ValueError("the request's URL holds a space or a control character")

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} {shown_url(self.url)}>"


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """Where a client's requests go: the endpoint's base URL and the headers every request carries.

    `headers` are the client's own (authorization among them); `overrides` are the caller's
    `default_headers`, which win over everything.
    """

    base_url: str
    headers: tuple[tuple[str, str], ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"<Target {shown_url(self.base_url)}>"

    @property
    def host(self) -> str:
        """The endpoint's host and port, lower case, as fidelity names it."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2].lower()

    def url(self, path: str) -> str:
        """The URL of `path` (`/chat/completions`) below the base; the query strings of both are kept."""
        parts = urlsplit(self.base_url)
        path, _, query = path.partition("?")
        return parts._replace(
            path=parts.path.rstrip("/") + path,
            query="&".join(filter(None, (parts.query, query))),
            fragment="",
        ).geturl()

    def request(
        self,
        method: str,
        path: str,
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
        owed: int = 0,
    ) -> HttpRequest:
        """The request itself: `headers` of the codec, then ours, then the caller's, last one wins."""
        merged = {
            name.lower(): (name, value)
            for name, value in (*headers, *self.headers, *self.overrides)
        }
        return HttpRequest(method, self.url(path), tuple(merged.values()), body, owed)


def _is_host(host: str) -> bool:
    try:
        return host.isascii() or bool(host.encode("idna"))
    except UnicodeError:
        return False


def shown_url(url: str) -> str:
    """The URL as an error may show it: without a password, and without the query, where keys stand."""
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=netloc, query="", fragment="").geturl()
