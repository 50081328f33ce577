"""What both of Google's wires need to have a model speak: whose voices, and whose words.

A model whose id holds "tts" reads the last message aloud and takes no other settings. With two voices the
text is a script: a line `Name: words` with a configured name begins that speaker's turn, other lines go
on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidMessageError, UnsupportedContentError, UnsupportedParameterError
from ..types import UniMessage
from .encoding import Json

__all__ = ["is_speech", "script", "turns", "voices"]

_VOICE = "Kore"  # when the caller chose none
_MOST = 2


def is_speech(model: str) -> bool:
    return "tts" in model.lower()


def voices(config: Json, *, client: str) -> list[Json]:
    """One or two of `{"voice", "speaker"?}`. Raises `UnsupportedParameterError`."""
    chosen: list[Json] = config.get("tts_config") or [{"voice": _VOICE}]
    problem = ""
    if len(chosen) > _MOST:
        problem = f"tts_config has {len(chosen)} voices: the model speaks with {_MOST} at most"
    elif len(chosen) == _MOST and not all(each.get("speaker") for each in chosen):
        problem = "tts_config has two voices: give each its `speaker`, the name in the script"
    if problem:
        raise UnsupportedParameterError(problem, client=client, parameter="tts_config")
    return chosen


def script(messages: Sequence[UniMessage], *, client: str) -> str:
    """The text of the last message. Raises `UnsupportedContentError` for anything but text."""
    items: list[Any] = list(messages[-1]["content_items"])
    for item in items:
        if item["type"] != "text.done":
            raise UnsupportedContentError(
                "a speech model reads text alone: leave everything else out of the last message",
                client=client,
                item_type=item["type"],
            )
    return "\n".join(item["text"] for item in items)


def turns(text: str, names: Sequence[str], *, client: str, index: int) -> list[tuple[str, str]]:
    """The script as (speaker, words). Raises `InvalidMessageError` for words before any name."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        name, colon, words = line.partition(":")
        if colon and name.strip() in names:
            found.append((name.strip(), [words.strip()]))
        elif found:
            found[-1][1].append(line)
        elif line.strip():
            raise InvalidMessageError(
                f"messages[{index}] begins with words of no speaker: begin each turn with "
                f"{' or '.join(f'{each}:' for each in names)}",
                client=client,
                item_type="text",
                message_index=index,
            )
    return [(name, "\n".join(lines).strip()) for name, lines in found]
