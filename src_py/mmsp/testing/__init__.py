"""A scripted provider on a real socket, to test streaming and stopping with.

    from mmsp.testing import Answer, ScriptedProvider, chat, say, stall

    with ScriptedProvider(Answer(say(chat.text("Hel")), stall())) as provider:
        ...  # point a client at provider.base_url, read "Hel", stop
        provider.connections[0].wait_closed()

It sees how the far side closes on the TCP socket itself, and when. It needs Linux (epoll) and the
packages of `mmsp[testing]`. Nothing else of mmsp is imported here.
"""

from . import chat, embeddings, generate_content, interactions, messages, mmsp_wire, responses
from .process import ProviderProcess
from .provider import ScriptedProvider
from .records import ConnectionRecord, ReceivedRequest
from .script import Answer, Step, cut, drip, gate, pause, reset, say, stall

__all__ = [
    "Answer",
    "ConnectionRecord",
    "ProviderProcess",
    "ReceivedRequest",
    "ScriptedProvider",
    "Step",
    "chat",
    "cut",
    "drip",
    "embeddings",
    "gate",
    "generate_content",
    "interactions",
    "messages",
    "mmsp_wire",
    "pause",
    "reset",
    "responses",
    "say",
    "stall",
]
