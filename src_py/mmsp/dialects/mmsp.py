"""A server of this library's own. It takes any call when it was started without keys."""

from __future__ import annotations

from .endpoint import Endpoint

__all__ = ["ENDPOINT"]

ENDPOINT = Endpoint("http://127.0.0.1:25752/v1", "MMSP_API_KEY", "MMSP_BASE_URL", open_server=True)
