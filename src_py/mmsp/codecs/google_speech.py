"""What both of Google's wires need to have a model speak: whose voices, and whose words.

A model whose id holds "tts" reads the last message aloud and takes no other settings. With two voices the
text is a script: a line `Name: words` with a configured name begins that speaker's turn, other lines go
on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidMessageError, UnsupportedContentError
from .encoding import Asked, Json

__all__ = ["is_speech", "speech"]

_VOICE = "Kore"  # when the caller chose none
_MOST = 2


def is_speech(model: str) -> bool:
    return "tts" in model.lower()


def speech(asked: Asked, labelled: str) -> tuple[list[Json], list[tuple[str, str]]]:
    """One or two of `{"voice", "speaker"?}`, and what they say as (speaker, words).

    The speaker is "" where the text is read as it stands: with one voice, and by models without
    `labelled` in their id, which find the labels themselves. Raises `UnsupportedParameterError`,
    `UnsupportedContentError` for anything but text, `InvalidMessageError` for words of no speaker.
    """
    chosen = _voices(asked)
    text = _script(asked)
    if len(chosen) < _MOST or labelled not in asked.model.lower():
        return chosen, [("", text)]
    return chosen, _turns(text, [each["speaker"] for each in chosen], asked)


def _voices(asked: Asked) -> list[Json]:
    chosen: list[Json] = asked.config.get("tts_config") or [{"voice": _VOICE}]
    if len(chosen) > _MOST:
        why = f"it has {len(chosen)} voices, and the model speaks with {_MOST} at most"
        raise asked.unsupported("tts_config", why, "Leave the others out")
    if len(chosen) == _MOST and not all(each.get("speaker") for each in chosen):
        why = "it has two voices, and one has no speaker"
        raise asked.unsupported(
            "tts_config", why, "Give each its `speaker`, the name in the script"
        )
    return chosen


def _script(asked: Asked) -> str:
    """The text of the last message."""
    items: list[Any] = list(asked.messages[-1]["content_items"])
    for item in items:
        if item["type"] != "text.done":
            raise UnsupportedContentError(
                "a speech model reads text alone: leave everything else out of the last message",
                client=asked.client,
                item_type=item["type"],
            )
    return "\n".join(item["text"] for item in items)


def _turns(text: str, names: Sequence[str], asked: Asked) -> list[tuple[str, str]]:
    index = len(asked.messages) - 1
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
                client=asked.client,
                item_type="text",
                message_index=index,
            )
    return [(name, "\n".join(lines).strip()) for name, lines in found]
