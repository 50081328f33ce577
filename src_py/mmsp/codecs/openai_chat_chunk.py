"""A chunk of a Chat Completions stream: the few fields that are read, and two ways to read them.

`decode` goes straight from bytes into the fields, as for every wire. What does not fit (arguments
as an object, a number for an id, half a character) is read again by `forgive`, which knows the forms that
this wire's many imitators have: content as a list of parts or of texts, thinking among them, arguments as
an object, halves of characters in each of several calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import msgspec

from .forgiving import integer_in

__all__ = [
    "CallPiece",
    "Chunk",
    "Delta",
    "Detail",
    "Part",
    "Usage",
    "as_chunk",
    "decode",
    "forgive",
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


class Part(msgspec.Struct, gc=False):
    """A typed part of content. Thinking may be a list of text parts itself."""

    type: str | None = None
    text: str | None = None
    thinking: str | list[Part | str] | None = None

    @property
    def thought(self) -> str:
        """The words of thinking, "" for a part of any other type."""
        if self.type != "thinking" or not self.thinking:
            return ""
        if isinstance(self.thinking, str):
            return self.thinking
        return "".join(
            (each if isinstance(each, str) else each.text) or "" for each in self.thinking
        )


class Delta(msgspec.Struct, gc=False):
    content: str | list[Part | str] | None = None
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
"""Raises `ValueError` (or `RecursionError`) for what does not fit or is no JSON."""


Mend = Callable[[Hashable, str], str]


def forgive(answer: dict[str, Any], mend: Mend) -> Chunk:
    """The chunk that `answer` means; `mend(field, text)` puts characters cut in two together.

    Raises `RecursionError` for arguments that came as an object nested too deeply.
    """
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


class _Forgiving:
    def __init__(self, mend: Mend) -> None:
        self._mend = mend

    def choice(self, choice: dict[str, Any]) -> Choice:
        return Choice(
            index=integer_in(choice.get("index")),
            delta=self._delta(choice.get("delta")),
            message=self._delta(choice.get("message")),
            finish_reason=_name(choice.get("finish_reason")),
        )

    def _delta(self, delta: Any) -> Delta | None:
        if not isinstance(delta, dict):
            return None
        return Delta(
            content=self._content(delta.get("content")),
            reasoning_content=self._text(delta, "reasoning_content"),
            reasoning=self._text(delta, "reasoning"),
            reasoning_details=[self._detail(it) for it in _objects(delta.get("reasoning_details"))],
            tool_calls=[self._call(each) for each in _objects(delta.get("tool_calls"))],
            refusal=self._text(delta, "refusal"),
        )

    def _content(self, content: Any) -> str | list[Part | str] | None:
        if isinstance(content, list):
            return [self._part(each) for each in content if isinstance(each, dict | str)]
        return self._mend("content", content) if isinstance(content, str) else None

    def _part(self, part: dict[str, Any] | str) -> Part | str:
        if isinstance(part, str):
            return self._mend("content", part)
        kind = "thinking" if part.get("type") == "thinking" else "text"
        words = self._mend("content", _words(part.get(kind)))
        return Part(type=kind, text=words, thinking=words)

    def _call(self, call: dict[str, Any]) -> CallPiece:
        function = _object(call.get("function"))
        index, id = integer_in(call.get("index")), _name(call.get("id"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):  # of calls side by side each has its own halves
            arguments = self._mend(("arguments", id if index is None else index), arguments)
        else:
            arguments = None
        return CallPiece(index, id, Function(_name(function.get("name")), arguments))

    def _detail(self, detail: dict[str, Any]) -> Detail:
        fields = {name: _name(detail.get(name)) for name in Detail.__struct_fields__}
        fields |= {name: self._text(detail, name) for name in ("text", "summary")}
        return Detail(**fields)

    def _text(self, of: dict[str, Any], field: str) -> str | None:
        value = of.get(field)
        return self._mend(field, value) if isinstance(value, str) else None


def _words(value: Any) -> str:
    """Text, or the texts of a list of text parts."""
    if isinstance(value, list):
        texts = (each.get("text") if isinstance(each, dict) else each for each in value)
        return "".join(each for each in texts if isinstance(each, str))
    return value if isinstance(value, str) else ""


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    taken = _object(usage.get("prompt_tokens_details"))
    made = _object(usage.get("completion_tokens_details"))
    return Usage(
        prompt_tokens=integer_in(usage.get("prompt_tokens")),
        completion_tokens=integer_in(usage.get("completion_tokens")),
        prompt_tokens_details=InputDetails(integer_in(taken.get("cached_tokens"))),
        completion_tokens_details=OutputDetails(integer_in(made.get("reasoning_tokens"))),
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
