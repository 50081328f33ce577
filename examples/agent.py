"""A model that calls tools until it has its answer.

    python examples/agent.py gpt-5.5 "Is it warmer in Oslo or in Rome?"

Ctrl-C stops it wherever it is: the provider's connection is closed, and the turn that was under way is not
in the history, so that the conversation could go on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from mmsp import AutoLLMClient, UniMessage


def temperature(city: str) -> str:
    """The temperature in a city."""
    return {"oslo": "7 °C", "rome": "19 °C"}.get(city.lower(), "nobody knows")


FUNCTIONS: dict[str, Callable[..., str]] = {"temperature": temperature}
TOOLS = [
    {
        "name": "temperature",
        "description": "The temperature in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


def result_of(call: Any) -> Any:
    """What a call gives. A model may call what there is not, or wrongly: it is told so."""
    try:
        text = FUNCTIONS[call["name"]](**call["arguments"])
    except (KeyError, TypeError) as error:
        text = f"this call failed: {error!r}"
    return {"type": "tool_result.done", "text": text, "tool_call_id": call["tool_call_id"]}


async def answer(client: AutoLLMClient, question: str, most_turns: int = 10) -> UniMessage:
    """Ask, do what the model wants done, and tell it, until it has nothing more to be done."""
    items: list[Any] = [{"type": "text.done", "text": question}]
    for _ in range(most_turns):
        config: Any = {"tools": TOOLS}
        stream = client.streaming_response_stateful(
            {"role": "user", "content_items": items}, config
        )
        async with stream:
            async for text in stream.text():
                print(text, end="", flush=True)
            message = await stream.message()
        calls = [item for item in message["content_items"] if item["type"] == "tool_call.done"]
        if not calls:
            print()
            return message
        items = [result_of(call) for call in calls]
    raise RuntimeError(f"no answer after {most_turns} turns")


if __name__ == "__main__":
    model, question = sys.argv[1:]
    try:
        asyncio.run(answer(AutoLLMClient(model), question))
    except KeyboardInterrupt:
        sys.exit(130)
