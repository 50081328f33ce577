"""An answer within a time budget: what has come by then is kept, and the provider's connection closed.

python examples/budget.py gpt-5.5 2.5
"""

from __future__ import annotations

import asyncio
import sys

from mmsp import AbortError, AbortSignal, AutoLLMClient, UniMessage

QUESTION: UniMessage = {
    "role": "user",
    "content_items": [{"type": "text.done", "text": "Tell me a story."}],
}


async def within(client: AutoLLMClient, seconds: float) -> UniMessage | None:
    """The answer, or as much of it as came in time; None if that was nothing. It is in the history."""
    signal = AbortSignal.timeout(seconds)
    async with client.streaming_response_stateful(QUESTION, signal=signal) as stream:
        try:
            return await stream.message()  # records the turn
        except AbortError:
            part = stream.partial_message()
    if part is not None:  # an aborted turn is not recorded: to keep a part of it is our decision
        client.set_history([*client.get_history(), QUESTION, part])
    return part


async def main(model: str, seconds: float) -> None:
    message = await within(AutoLLMClient(model), seconds)
    items = [] if message is None else message["content_items"]
    print("".join(item["text"] for item in items if item["type"] == "text.done"))
    print(f"({'nothing' if message is None else message.get('finish_reason')})", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
