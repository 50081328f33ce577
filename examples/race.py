"""Two models are asked, the first to speak goes on; the others' connections are closed at once.

python examples/race.py gpt-5.5 claude-sonnet-5-5
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from mmsp import AutoLLMClient, MMSPError, Stream, UniEvent, UniMessage

QUESTION: UniMessage = {
    "role": "user",
    "content_items": [{"type": "text.done", "text": "In one sentence: why is the sky blue?"}],
}


async def first_words(stream: Stream) -> str:
    """Read until the model says something; what it thinks does not count."""
    async for event in stream:
        if text := text_in(event):
            return text
    raise RuntimeError("the model said nothing")


def text_in(event: UniEvent) -> str:
    return "".join(item["text"] for item in event["content_items"] if item["type"] == "text.delta")


async def race(streams: Sequence[Stream]) -> tuple[Stream, str]:
    """The stream that speaks first, and its first words; the others are aborted. Raises the last error
    if all fail."""
    runners = {asyncio.create_task(first_words(stream)): stream for stream in streams}
    waiting = set(runners)
    try:
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            spoke = [task for task in done if task.exception() is None]
            if spoke or not waiting:
                winner = (spoke or list(done))[0]
                return runners[winner], winner.result()
    finally:
        for task in waiting:
            runners[task].abort("another was faster")  # closed when this returns
        await asyncio.gather(*runners, return_exceptions=True)


async def main(models: Sequence[str]) -> None:
    streams = [AutoLLMClient(model).streaming_response([QUESTION]) for model in models]
    winner, words = await race(streams)
    print(f"{models[streams.index(winner)]}: {words}", end="", flush=True)
    async for text in winner.text():
        print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:]))
    except MMSPError as error:
        sys.exit(f"nobody answered: {error}")
