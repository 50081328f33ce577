"""What a request of each wire says, as one list of parts; and the same said in our messages.

An outline is in no wire's words, so that two requests can be compared that say the same in other forms: a
text as a string or as a list of one part, a system prompt in a field or as a message. `Unsayable` is what
our messages have no words for, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["OUTLINES", "Unsayable", "as_said"]

Part = tuple[Any, ...]


class Unsayable(Exception):
    """A part of a request that no message of ours is made of."""


def chat(body: Any) -> Iterator[Part]:
    for message in body["messages"]:
        role = message["role"]
        if role in ("system", "developer"):
            yield ("system", _joined(message["content"]))
        elif role == "tool":
            yield ("user", "result", message["tool_call_id"], _joined(message["content"]))
        else:
            yield from _chat_content(role, message.get("content"))
            for call in message.get("tool_calls") or ():
                function = call["function"]
                yield (
                    "assistant",
                    "call",
                    call["id"],
                    function["name"],
                    _object(function["arguments"]),
                )
    for tool in body.get("tools") or ():
        if tool["type"] != "function":
            raise Unsayable(f"a tool of the provider's own: {tool['type']}")
        yield _tool(tool["function"], "parameters")


def _chat_content(role: str, content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    for part in content or ():
        match part["type"]:
            case "text":
                yield (role, "text", part["text"])
            case "image_url":
                yield (role, "image", part["image_url"]["url"])
            case kind:
                raise Unsayable(f"a part of content: {kind}")


def responses(body: Any) -> Iterator[Part]:
    if body.get("previous_response_id"):
        raise Unsayable("a conversation that the provider keeps")
    if body.get("instructions"):
        yield ("system", body["instructions"])
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        match item.get("type", "message"):
            case "message":
                yield from _responses_message(item)
            case "function_call":
                yield (
                    "assistant",
                    "call",
                    item["call_id"],
                    item["name"],
                    _object(item["arguments"]),
                )
            case "function_call_output":
                yield ("user", "result", item["call_id"], _joined(item["output"]))
            case "reasoning":
                texts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                yield ("assistant", "thinking", _joined(texts), item.get("encrypted_content"))
            case kind:
                raise Unsayable(f"an item of input: {kind}")
    for tool in body.get("tools") or ():
        if tool["type"] != "function":
            raise Unsayable(f"a tool of the provider's own: {tool['type']}")
        yield _tool(tool, "parameters")


def _responses_message(item: Any) -> Iterator[Part]:
    role, content = item["role"], item["content"]
    if role in ("system", "developer"):
        yield ("system", _joined(content))
        return
    for part in _parts(content, "input_text"):
        match part["type"]:
            case "input_text" | "output_text":
                yield (role, "text", part["text"])
            case "input_image":
                yield (role, "image", part["image_url"])
            case kind:
                raise Unsayable(f"a part of content: {kind}")


def messages(body: Any) -> Iterator[Part]:
    if body.get("system"):
        yield ("system", _joined(body["system"]))
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        for block in _parts(content, "text"):
            match block["type"]:
                case "text":
                    yield (role, "text", block["text"])
                case "image" if block["source"]["type"] == "base64":
                    source = block["source"]
                    yield (role, "image", f"data:{source['media_type']};base64,{source['data']}")
                case "image" if block["source"]["type"] == "url":
                    yield (role, "image", block["source"]["url"])
                case "tool_use":
                    yield ("assistant", "call", block["id"], block["name"], block["input"])
                case "tool_result":
                    yield ("user", "result", block["tool_use_id"], _joined(block.get("content")))
                case "thinking":
                    yield ("assistant", "thinking", block["thinking"], block.get("signature"))
                case kind:
                    raise Unsayable(f"a block: {kind}")
    for tool in body.get("tools") or ():
        if tool.get("type", "custom") != "custom":
            raise Unsayable(f"a tool of the provider's own: {tool['type'].rpartition('_')[0]}")
        yield _tool(tool, "input_schema")


def generate_content(body: Any) -> Iterator[Part]:
    system = body.get("systemInstruction")
    if system:
        yield ("system", _joined(system["parts"]))
    for content in body["contents"]:
        role = {"user": "user", "model": "assistant"}.get(content.get("role", "user"))
        if role is None:
            raise Unsayable(f"a role that does not exist: {content['role']}")
        for part in content["parts"]:
            yield from _google_part(role, part)
    for tool in body.get("tools") or ():
        if tool.keys() - {"functionDeclarations", "function_declarations"}:
            raise Unsayable(f"a tool of the provider's own: {', '.join(sorted(tool))}")
        for function in tool.get("functionDeclarations") or tool["function_declarations"]:
            schema = "parametersJsonSchema" if "parametersJsonSchema" in function else "parameters"
            yield _tool(function, schema)


def _google_part(role: str, part: Any) -> Iterator[Part]:
    call = part.get("functionCall") or part.get("function_call")
    result = part.get("functionResponse") or part.get("function_response")
    if call:
        yield (
            "assistant",
            "call",
            call.get("id") or call["name"],
            call["name"],
            call.get("args") or {},
        )
    elif result:
        answer = result["response"]
        said = answer["result"] if answer.keys() == {"result"} else answer
        text = said if isinstance(said, str) else json.dumps(said)
        yield ("user", "result", result.get("id") or result["name"], text)
    elif part.get("thought"):
        yield ("assistant", "thinking", part["text"], part.get("thoughtSignature"))
    elif "text" in part:
        yield (role, "text", part["text"])
    elif "inlineData" in part:
        data = part["inlineData"]
        yield (role, "image", f"data:{data['mimeType']};base64,{data['data']}")
    else:
        raise Unsayable(f"a part: {', '.join(sorted(part))}")


def interactions(body: Any) -> Iterator[Part]:
    if body.get("system_instruction"):
        yield ("system", body["system_instruction"])
    for step in body["input"]:
        if step["type"] not in ("user_input", "model_output"):
            raise Unsayable(f"a step: {step['type']}")
        role = {"user_input": "user", "model_output": "assistant"}[step["type"]]
        for part in step["content"]:
            if part["type"] != "text":
                raise Unsayable(f"a part of content: {part['type']}")
            yield (role, "text", part["text"])
    for tool in body.get("tools") or ():
        if tool["type"] != "function":
            raise Unsayable(f"a tool of the provider's own: {tool['type']}")
        yield _tool(tool, "parameters")


OUTLINES: dict[str, Callable[[Any], Iterator[Part]]] = {
    "openai-chat": chat,
    "openai-compat": chat,
    "openai-responses": responses,
    "anthropic-messages": messages,
    "google-generatecontent": generate_content,
    "google-interactions": interactions,
}


# ---- the same in our words


def as_said(outline: list[Part], wire: str, host: str) -> tuple[list[Any], dict[str, Any]]:
    """Our messages and config that say what an outline does."""
    found: list[Any] = []
    config: dict[str, Any] = {}
    for part in outline:
        match part:
            case ("system", text):
                if found:
                    raise Unsayable("a system prompt behind a message")
                before = config.get("system_prompt")
                config["system_prompt"] = text if before is None else f"{before}\n\n{text}"
            case ("tool", name, description, schema):
                tool = {"name": name, "description": description, "parameters": schema}
                config.setdefault("tools", []).append(tool)
            case (role, *item):
                if not found or found[-1]["role"] != role:
                    found.append({"role": role, "content_items": []})
                found[-1]["content_items"].append(_item(item, wire, host))
    return found, config


def _item(item: list[Any], wire: str, host: str) -> Any:
    match item:
        case ["text", text]:
            return {"type": "text.done", "text": text}
        case ["image", url]:
            return {"type": "image_url.done", "image_url": url}
        case ["call", id, name, arguments]:
            call = {"name": name, "arguments": arguments, "tool_call_id": id}
            return {"type": "tool_call.done", **call}
        case ["result", id, text]:
            return {"type": "tool_result.done", "text": text, "tool_call_id": id}
        case ["thinking", text, seal]:
            return {"type": "thinking.done", "thinking": text, **_sealed(seal, wire, host)}
    raise AssertionError(item)


def _sealed(seal: str | None, wire: str, host: str) -> dict[str, Any]:
    if seal is None:
        return {}
    key = "encrypted_content" if wire == "openai_responses" else "signature"
    channel = {"channel": "summary"} if wire == "openai_responses" else {}
    return {"fidelity": {**channel, key: seal, "wire": wire, "host": host}}


# ---- forms


def _parts(content: Any, kind: str) -> Any:
    """A text given as it is, as a list of one part."""
    return [{"type": kind, "text": content}] if isinstance(content, str) else content


def _joined(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    if any("text" not in part for part in content):
        raise Unsayable("a result that is not text alone")
    return "\n\n".join(part["text"] for part in content)


def _object(arguments: str) -> Any:
    return json.loads(arguments or "{}")


def _tool(tool: Any, key: str) -> Part:
    return ("tool", tool["name"], tool.get("description"), tool.get(key) or {})
