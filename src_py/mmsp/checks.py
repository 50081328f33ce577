"""What a caller gives to a call: checked and copied before anything is sent.

Every error names the place of what is wrong (`messages[2].content_items[0].tool_call_id`) and says what
would be right. What is good comes back as copies that share strings and bytes with the caller's objects,
which are never changed. A field of an item that nobody knows is refused, since it would silently not be
sent; a message may carry keys of the program's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from .errors import InvalidMessageError, UnsupportedParameterError
from .plain import (
    Fault,
    argument_shown,
    below,
    closest,
    exact,
    key_text,
    kind_of,
    plain_copy,
    text,
)
from .rules import (
    Rule,
    bytes_data,
    filled,
    flag,
    form,
    is_list,
    json_object,
    list_of,
    nearest,
    number,
    one_of,
    or_null,
    url,
    whole_number,
)
from .synonyms import (
    CONTENT,
    FIELDS_OF_A_TOOL,
    advice_for_item,
    advice_for_key,
    advice_for_role,
    plainly,
)
from .types import UniConfig, UniMessage

__all__ = ["checked_config", "checked_message", "checked_messages"]


def checked_messages(messages: Any, *, client: str, now: int) -> list[UniMessage]:
    """Copies of `messages`; `now` (unix ms) is stamped on those without `created_at`.

    Raises `InvalidMessageError`.
    """
    if not is_list(messages):
        one = " Put the message into a list." if isinstance(messages, Mapping) else ""
        raise InvalidMessageError(
            f"messages is {kind_of(messages)}; it is a list of messages.{one}", client=client
        )
    return [
        _message(message, f"messages[{index}]", index, client, now)
        for index, message in enumerate(messages)
    ]


def checked_message(message: Any, *, client: str, now: int) -> UniMessage:
    """The same of the one message of a stateful call; its `message_index` is 0."""
    return _message(message, "message", 0, client, now)


def checked_config(config: Any, *, client: str) -> UniConfig:
    """A copy of `config` without the keys that are null. Raises `UnsupportedParameterError`."""
    if not isinstance(config, Mapping):
        raise UnsupportedParameterError(
            f"config is {kind_of(config)}; it is an object", client=client, parameter="config"
        )
    checked: dict[str, Any] = {}
    for given, value in config.items():
        key = _config_key(given, client)
        rule = _CONFIG.get(key)
        if rule is None:
            raise UnsupportedParameterError(
                f"config has no key {key!r}{_config_advice(key)}",
                client=client,
                parameter=key,
            )
        if value is not None:
            try:
                checked[key] = rule(value)
            except Fault as fault:
                raise UnsupportedParameterError(
                    f"config.{key}{fault.path} {fault.problem}", client=client, parameter=key
                ) from None
    if checked.get("stop_sequences") == []:
        del checked["stop_sequences"]  # providers refuse an empty list
    _check_choice(checked, client)
    return cast("UniConfig", checked)


def _config_advice(key: str) -> str:
    """`: it is 'stop_sequences' here`, or the nearest key, or what there is."""
    found = None if plainly(key) in map(plainly, _CONFIG) else advice_for_key(key)
    return nearest(key, _CONFIG) if found is None else f": {found}"


def _config_key(key: Any, client: str) -> str:
    if isinstance(key, str):
        return exact(key)
    raise UnsupportedParameterError(
        f"config has {kind_of(key)} for a key; keys are strings",
        client=client,
        parameter=argument_shown(key),
    )


# ---- messages


def _message(message: Any, name: str, index: int, client: str, now: int) -> UniMessage:
    try:
        checked = _fields(message)
    except _ItemFault as fault:
        raise InvalidMessageError(
            f"{name}{fault.path} {fault.problem}",
            client=client,
            item_type=fault.item_type,
            message_index=index,
        ) from None
    except Fault as fault:
        raise InvalidMessageError(
            f"{name}{fault.path} {fault.problem}", client=client, message_index=index
        ) from None
    checked.setdefault("created_at", now)
    return cast("UniMessage", checked)


class _ItemFault(Fault):
    def __init__(self, fault: Fault, item_type: str | None) -> None:
        super().__init__(fault.problem, fault.path)
        self.item_type = item_type


def _fields(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict | Mapping):
        raise Fault(f"is {kind_of(message)}; a message is an object")
    for key in ("role", "content_items"):
        if key not in message:
            advice = _for_content(message) if key == "content_items" else ""
            raise Fault(f"is missing{advice or _nearest_key(key, message)}", f".{key}")
    role = below("role", _role, message["role"])
    checked: dict[str, Any] = {"role": role}
    for given, value in message.items():
        key = key_text(given)
        if key == "content_items":
            checked[key] = below(key, _items, value, role)
        elif key != "role":
            copied = below(key, _MESSAGE.get(key, plain_copy), value)
            if copied is not None or key not in _MESSAGE:
                checked[key] = copied
    return checked


def _role(role: Any) -> str:
    if role == "user" or role == "assistant":
        return text(role)
    if not isinstance(role, str):
        raise Fault(f'is {kind_of(role)}; it is "user" or "assistant"')
    raise Fault(f'is {exact(role)!r}; it is "user" or "assistant"{advice_for_role(role)}')


def _items(items: Any, role: str) -> list[Any]:
    if not is_list(items):
        raise Fault(f"is {kind_of(items)}; it is a list of items")
    if not items:
        raise Fault("is empty: give it at least one item")
    return [below(at, _item, item, role) for at, item in enumerate(items)]


def _item(item: Any, role: str) -> dict[str, Any]:
    if not isinstance(item, dict | Mapping):
        hint = ': text is {"type": "text.done", "text": "…"}' if isinstance(item, str) else ""
        raise Fault(f"is {kind_of(item)}; an item is an object{hint}")
    kind = item.get("type")
    kind = exact(kind) if isinstance(kind, str) else kind
    shape = _ITEMS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        _refuse_type(item, kind)
    name = str(kind).removesuffix(".done")
    roles, rules, optional = shape
    try:
        if role not in roles:
            raise Fault(f"is {kind!r}, which belongs into {_a(roles[0])} message", ".type")
        checked: dict[str, Any] = {"type": kind}
        for given, value in item.items():
            key = key_text(given)
            rule = rules.get(key) or optional.get(key)
            if rule is not None:
                if value is not None or key in rules:  # null counts as absent
                    checked[key] = below(key, rule, value)
            elif key != "type":
                known = (*rules, *optional)
                raise Fault(f"has no field {key!r}{nearest(key, known)}")
        for key in rules:
            if key not in checked:
                raise Fault(_MISSING.get(key, "is missing"), f".{key}")
    except Fault as fault:
        raise _ItemFault(fault, name) from None
    return checked


def _refuse_type(item: Mapping[Any, Any], kind: Any) -> NoReturn:
    if "type" not in item:
        raise _ItemFault(
            Fault('is missing: an item begins with its type, as "text.done"', ".type"), None
        )
    if not isinstance(kind, str):
        raise _ItemFault(Fault(f"is {kind_of(kind)}; it is a string", ".type"), None)
    whole = kind.removesuffix(".delta") + ".done"
    if kind.endswith(".delta") and whole in _ITEMS:
        problem = f"is {kind!r}, a piece of an item: messages hold the whole, {whole!r}"
    else:
        found = advice_for_item(kind)
        advice = nearest(kind, _ITEMS) if found is None else f": {found}"
        problem = f"is {kind!r}, which is no type of item{advice}"
    raise _ItemFault(Fault(problem, ".type"), kind)


# ---- rules of their own


def _usage(value: Any) -> dict[str, Any]:
    """All four counts, null where there is none."""
    given: dict[str, Any] = form({}, dict.fromkeys(_COUNTS, whole_number()))(value)
    return {name: given.get(name) for name in _COUNTS}


def _tools(value: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = list_of(_TOOL, "tools")(value)
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool["name"] in names:
            raise Fault(f"is {tool['name']!r} for the second time", f"[{at}].name")
        names.add(tool["name"])
    return tools


def _tool_choice(value: Any) -> str | list[str]:
    if is_list(value):
        names: list[str] = list_of(filled, "names of tools")(value)
        if not names:
            raise Fault('is empty: name a tool, or say "none"')
        return names
    return cast("str", one_of("auto", "required", "none")(value))


def _check_choice(config: dict[str, Any], client: str) -> None:
    """The tools that a choice asks for have to be there; those in `extra_body` are the caller's affair."""
    choice = config.get("tool_choice")
    if choice in ("auto", "none", None) or "tools" in config.get("extra_body", {}):
        return
    known = [tool["name"] for tool in config.get("tools", ())]
    problem = None
    if choice == "required":
        problem = None if known else " is 'required', and config has no tools to choose from"
    else:
        at = next((at for at, name in enumerate(choice) if name not in known), None)
        if at is not None:
            there = nearest(choice[at], known) if known else ": config has no tools"
            problem = f"[{at}] is {choice[at]!r}, which is none of the tools{there}"
    if problem is not None:
        raise UnsupportedParameterError(
            f"config.tool_choice{problem}", client=client, parameter="tool_choice"
        )


# ---- the tables

_BOTH, _USER, _ASSISTANT = ("user", "assistant"), ("user",), ("assistant",)
_FIDELITY: dict[str, Rule] = {"fidelity": json_object}
_INLINE: dict[str, Rule] = {"data": bytes_data, "mime_type": filled}

# Each type of item: the roles of its message, the fields it must have, and those it may have.
_ITEMS: dict[str, tuple[tuple[str, ...], dict[str, Rule], dict[str, Rule]]] = {
    "text.done": (_BOTH, {"text": text}, _FIDELITY),
    "image_url.done": (_USER, {"image_url": url}, _FIDELITY),
    "inline_data.done": (_BOTH, _INLINE, _FIDELITY),
    "thinking.done": (_ASSISTANT, {"thinking": text}, _FIDELITY),
    "inline_thinking.done": (_ASSISTANT, _INLINE, _FIDELITY),
    "tool_call.done": (
        _ASSISTANT,
        {"name": filled, "arguments": json_object, "tool_call_id": filled},
        _FIDELITY,
    ),
    "tool_result.done": (
        _USER,
        {"text": text, "tool_call_id": filled},
        {"images": list_of(url, "URLs"), **_FIDELITY},
    ),
    "embedding.done": (_ASSISTANT, {"embedding": list_of(number, "numbers")}, _FIDELITY),
}
_MISSING = {"tool_call_id": "is missing: a result names the call that it answers"}

_COUNTS = ("cached_tokens", "prompt_tokens", "thoughts_tokens", "response_tokens")
_FINISHES = ("stop", "length", "tool_call", "content_filter", "unknown")

# What a message may have besides role and items; null counts as absent.
_MESSAGE: dict[Any, Rule] = {
    "created_at": or_null(whole_number()),
    "usage_metadata": or_null(_usage),
    "finish_reason": or_null(one_of(*_FINISHES)),
}

_TOOL = form(
    {"name": filled}, {"description": text, "parameters": json_object}, advice=FIELDS_OF_A_TOOL
)
_RATIOS = ("1:1", "2:3", "3:2", "3:4", "4:3", "9:16", "16:9", "21:9")

_CONFIG: dict[Any, Rule] = {
    "max_tokens": whole_number(0),
    "temperature": number,
    "top_p": number,
    "stop_sequences": list_of(filled, "strings"),
    "seed": whole_number(),
    "output_schema": json_object,
    "extra_body": json_object,
    "tools": _tools,
    "tool_choice": _tool_choice,
    "thinking_level": one_of("none", "low", "medium", "high", "xhigh", "max"),
    "thinking_summary": flag,
    "system_prompt": text,
    "prompt_caching": one_of("enable", "disable", "enhance"),
    "fast_mode": flag,
    "image_config": form({}, {"aspect_ratio": one_of(*_RATIOS), "image_size": one_of("1K", "2K")}),
    "tts_config": list_of(form({"voice": filled}, {"speaker": filled}), "voices"),
    "embedding_config": form({}, {"dimensions": whole_number(1)}),
    "trace_id": filled,
}


# ---- words


def _nearest_key(key: str, given: Mapping[Any, Any]) -> str:
    """The key that was perhaps meant for `key`."""
    near = closest(key, (each for each in given if isinstance(each, str)))
    return f": did you mean it with {near!r}?" if near is not None else ""


def _for_content(given: Mapping[Any, Any]) -> str:
    """What to write for the content of another library's message."""
    found = next((each for each in CONTENT if each in given), None)
    shape = '"content_items": [{"type": "text.done", "text": "…"}]'
    return f": write {shape} for {found!r}" if found is not None else ""


def _a(role: str) -> str:
    return f"{'an' if role[0] == 'a' else 'a'} {role}"
