"""Short words for tests that make one call and look at how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from mmsp import AutoLLMClient, MMSPError
from tests.asking import QUESTION, events_of, shown
from tests.raw_server import RawServer


def client_of_raw(server: RawServer, **settings: Any) -> AutoLLMClient:
    """A client of `server`, without retries unless they are asked for."""
    settings = {"ssl_context": server.ssl_context, "max_retries": 0, **settings}
    return AutoLLMClient("some-model", "a-key", server.base_url, "openai-chat", **settings)


async def ask(client: AutoLLMClient) -> list[str]:
    """The events of an answer, in short."""
    return shown(await events_of(client.streaming_response([QUESTION])))


async def failure_of(client: AutoLLMClient) -> tuple[MMSPError, list[str]]:
    """The error that a call ends with, and what was delivered before it."""
    delivered = []
    stream = client.streaming_response([QUESTION])
    with pytest.raises(MMSPError) as caught:
        async for event in stream:
            delivered.append(event)
    return caught.value, shown(delivered)
