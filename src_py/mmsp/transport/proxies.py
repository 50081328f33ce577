"""Which proxy a URL goes through: the environment's variables, read once per client."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .failure import TransportError

__all__ = ["Proxies"]


@dataclass(frozen=True, slots=True)
class Proxies:
    """Scheme (`http`, `https`, `all`) → proxy URL, and the hosts that are reached without one (`no`)."""

    by_scheme: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls) -> Proxies:
        """HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case, as `urllib` reads them."""
        if not any(name.lower().endswith("_proxy") for name in os.environ):
            return cls()
        from urllib.request import getproxies_environment  # costs 20 ms, and few need it

        return cls(getproxies_environment())

    def find(self, scheme: str, host: str, port: int) -> str | None:
        """The URL of the proxy for this destination, or None for a direct connection."""
        proxy = self.by_scheme.get(scheme) or self.by_scheme.get("all")
        if not proxy:
            return None
        import urllib.request

        bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # undocumented
        if bypass(f"{host.rstrip('.')}:{port}", self.by_scheme):
            return None
        return _checked(proxy if "://" in proxy else f"http://{proxy}")


_WRITE = "write http://host:port into HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"


def _checked(proxy: str) -> str:
    """`proxy` if it can be used; no message shows it, because a password may stand in it."""
    try:
        parts = urlsplit(proxy)
        usable = bool(parts.hostname) and parts.port != 0  # reading a port that is none raises
    except ValueError:
        raise TransportError(
            "proxy", f"the proxy's URL is malformed: {_WRITE}", retryable=False
        ) from None
    if parts.scheme not in ("http", "https"):
        raise TransportError(
            "proxy",
            f"{parts.scheme}:// proxies are not supported: name an http:// one",
            retryable=False,
        )
    if not usable:
        raise TransportError("proxy", f"the proxy's URL names no host: {_WRITE}", retryable=False)
    return proxy
