"""What the decoders of event streams have in common."""

from __future__ import annotations

import contextlib
import json
from types import ModuleType

import pytest

from mmsp.errors import MMSPError
from mmsp.grammar import Assembler
from mmsp.registry import CLIENTS
from mmsp.request import Target
from mmsp.testing import chat, interactions, messages, mmsp_wire, responses
from tests.reading import told

TARGET = Target("https://api.example/v1")
STREAMS: dict[str, ModuleType] = {
    "openai-chat": chat,
    "openai-responses": responses,
    "ant-messages": messages,
    "google-official": interactions,
    "mmsp": mmsp_wire,
}


@pytest.mark.parametrize("client_type", STREAMS)
def test_a_half_of_a_character_waits_for_the_next_piece_and_no_longer(client_type: str) -> None:
    wire = STREAMS[client_type]
    pieces = [halved(wire, each) for each in ("a\ud83d", "\ude00b\ud83d", "c", "\ude00d")]
    items = told(CLIENTS[client_type].load(), TARGET, pieces).items
    assert [item["text"] for item in items] == ["a", "😀b", "\ufffdc", "\ufffdd"]


def halved(wire: ModuleType, piece: str) -> bytes:
    """The event of a text that ends or begins within a character, as JavaScript writes it."""
    event: bytes = wire.text("TEXT")
    return event.replace(b'"TEXT"', json.dumps(piece).encode())


# Places of some wire that may hold any JSON: each decoder is shown them all.
NESTED = (
    "%s",
    '{"type":"error","error":%s}',
    '{"event_type":"error","error":{"message":%s}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":7,"name":"f",'
    '"input":%s}}',
    '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%s}}]}}]}',
    '{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call",'
    '"call_id":"c","name":"f","arguments":%s}}',
    '{"type":"response.failed","response":{"error":%s}}',
    '{"event_type":"step.start","index":0,"step":{"type":"function_call","id":"c","name":"f",'
    '"arguments":%s}}',
    '{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":%s}}]}}]}',
    '{"event_type":"delta","content_items":[{"type":"text.delta","text":"a","fidelity":{"a":%s}}]}',
    '{"event_type":"delta","content_items":[{"type":"tool_call.done","name":"f","tool_call_id":"c",'
    '"arguments":{"a":%s}}]}',
    '{"error":{"type":"UpstreamError","message":"m","error":%s}}',
)
BY_CODEC = {type(entry.load().codec): name for name, entry in CLIENTS.items()}


@pytest.mark.parametrize("client_type", BY_CODEC.values())
@pytest.mark.parametrize("place", NESTED)
def test_nesting_however_deep_is_an_error_of_the_answer(client_type: str, place: str) -> None:
    """Readers of JSON give up at different depths: what one takes, the next may not."""
    codec = CLIENTS[client_type].load().codec
    for depth in (150, 250, *range(300, 1000, 29), 99999):
        for opening, closing in (('{"a":', "}"), ("[", "]")):
            data = (place % (opening * depth + "1" + closing * depth)).encode()
            for whole in (False, True):
                assembler = Assembler(client="C")
                decoder = codec.decoder(assembler, client="C", target=TARGET)
                with contextlib.suppress(MMSPError):
                    decoder.whole(data) if whole else decoder.feed("", data)
                    assembler.complete(terminal=True)
