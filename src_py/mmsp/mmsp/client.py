"""MMSP over HTTP, of this library's own server, which asks the providers and writes the traces itself."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.mmsp_wire import MMSPCodec
from ..dialects.mmsp import ENDPOINT

__all__ = ["MMSPClient"]


class MMSPClient(LLMClient):
    client_type = "mmsp"
    codec = MMSPCodec()
    endpoint = ENDPOINT
    traces = False
