"""A chunk of a Chat Completions stream: the few fields that are read, and two ways to read them.

`decode` goes straight from bytes into the fields, checks their types and skips all the rest. What
does not fit (content as a list, arguments as an object, a number for an id, half a character) is
read again by `forgive`, which takes what makes sense of anything that is JSON and leaves out the
rest, so that an imitator's oddity never ends a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

__all__ = [
    "CallPiece",
    "Chunk",
    "Delta",
    "Detail",
    "Usage",
    "as_chunk",
    "content_parts",
    "decode",
    "forgive",
    "plain",
]


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Detail(msgspec.Struct, gc=False):
    """A block of `reasoning_details`, as gateways send them."""

    type: str | None = None
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    format: str | None = None
    id: str | None = None
    signature: str | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Detail] | None = None
    tool_calls: list[CallPiece] | None = None
    refusal: str | None = None


class Choice(msgspec.Struct, gc=False):
    """`message` stands in place of `delta` where a server streams a whole completion."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class Groq(msgspec.Struct, gc=False):
    """Groq reports usage here; newer versions of its server in the usual place too."""

    usage: Usage | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    x_groq: Groq | None = None


decode = msgspec.json.Decoder(Chunk).decode
"""Raises `msgspec.ValidationError` for JSON that does not fit, `ValueError` for what is no JSON."""


def plain(data: bytes) -> Any:
    """`data` as plain JSON. Raises `ValueError` for what is none."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except ValueError:
        pass
    try:
        return json.loads(data)  # takes the half characters that JavaScript servers cut
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def forgive(answer: dict[str, Any], mend: Callable[[str, str], str]) -> Chunk:
    """The chunk that `answer` means; `mend(field, text)` puts characters cut in two together."""
    reader = _Forgiving(mend)
    return Chunk(
        choices=[reader.choice(each) for each in _objects(answer.get("choices"))],
        usage=_usage(answer.get("usage")),
        x_groq=Groq(_usage(_object(answer.get("x_groq")).get("usage"))),
        error=answer.get("error"),
    )


def as_chunk(answer: dict[str, Any]) -> dict[str, Any]:
    """A whole completion in the form of one chunk; its calls are whole too, so each has a number."""
    choices: list[dict[str, Any]] = []
    for choice in _objects(answer.get("choices")):
        message = choice.get("message")
        if isinstance(message, dict):
            calls = enumerate(_objects(message.get("tool_calls")))
            numbered = [{**call, "index": number} for number, call in calls]
            choice = {**choice, "delta": {**message, "tool_calls": numbered}}
        choices.append(choice)
    return {**answer, "choices": choices}


def content_parts(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The parts of the first choice's content, if it is a list, as ("text" or "thinking", words)."""
    for choice in _objects(answer.get("choices")):
        if not _integer(choice.get("index")):
            said = choice.get("delta") or choice.get("message")
            content = said.get("content") if isinstance(said, dict) else None
            if isinstance(content, list):
                yield from map(_part, content)
            return


class _Forgiving:
    def __init__(self, mend: Callable[[str, str], str]) -> None:
        self._mend = mend

    def choice(self, choice: dict[str, Any]) -> Choice:
        return Choice(
            index=_integer(choice.get("index")),
            delta=self._delta(choice.get("delta")),
            message=self._delta(choice.get("message")),
            finish_reason=_name(choice.get("finish_reason")),
        )

    def _delta(self, delta: Any) -> Delta | None:
        if not isinstance(delta, dict):
            return None
        return Delta(
            content=self._text(delta, "content"),
            reasoning_content=self._text(delta, "reasoning_content"),
            reasoning=self._text(delta, "reasoning"),
            reasoning_details=[self._detail(it) for it in _objects(delta.get("reasoning_details"))],
            tool_calls=[self._call(each) for each in _objects(delta.get("tool_calls"))],
            refusal=self._text(delta, "refusal"),
        )

    def _call(self, call: dict[str, Any]) -> CallPiece:
        function = call.get("function")
        if not isinstance(function, dict):
            function = {}
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            function = {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return CallPiece(
            index=_integer(call.get("index")),
            id=_name(call.get("id")),
            function=Function(_name(function.get("name")), self._text(function, "arguments")),
        )

    def _detail(self, detail: dict[str, Any]) -> Detail:
        fields = {name: _name(detail.get(name)) for name in Detail.__struct_fields__}
        fields |= {name: self._text(detail, name) for name in ("text", "summary")}
        return Detail(**fields)

    def _text(self, of: dict[str, Any], field: str) -> str | None:
        value = of.get(field)
        return self._mend(field, value) if isinstance(value, str) else None


def _part(part: Any) -> tuple[str, str]:
    """A typed part of content: text, or thinking, which may be a list of text parts itself."""
    if isinstance(part, str):
        return "text", part
    if not isinstance(part, dict):
        return "text", ""
    kind = "thinking" if part.get("type") == "thinking" else "text"
    words = part.get(kind)
    if isinstance(words, list):
        words = "".join(_part(each)[1] for each in words)
    return kind, words if isinstance(words, str) else ""


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    taken = _object(usage.get("prompt_tokens_details"))
    made = _object(usage.get("completion_tokens_details"))
    return Usage(
        prompt_tokens=_integer(usage.get("prompt_tokens")),
        completion_tokens=_integer(usage.get("completion_tokens")),
        prompt_tokens_details=InputDetails(_integer(taken.get("cached_tokens"))),
        completion_tokens_details=OutputDetails(_integer(made.get("reasoning_tokens"))),
    )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    listed: Iterable[Any] = value if isinstance(value, list) else ()
    return (each for each in listed if isinstance(each, dict))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str | None:
    """An identifier or word, which some servers send as a number."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).encode("utf-8", "replace").decode()


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
