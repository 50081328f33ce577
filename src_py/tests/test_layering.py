"""Imports point one way, I/O stays where it belongs, and `import mmsp` loads almost nothing.

The tables below are the rules; every module of the package is read, none is run. An import counts
wherever it stands: at the top, inside a function, for the type checker alone.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent
PACKAGE = SOURCES / "mmsp"

# A part of the package is a module or a folder of it, or all folders with a `client.py` together
# ("clients"). It may import from every row above its own, and from itself.
LAYERS = (
    (
        "types",
        "items",
        "errors",
        "sse",
        "request",
        "settings",
        "plain",
        "rules",
        "synonyms",
        "partial",
        "masking",
        "dialects",
    ),
    (
        "grammar",
        "codecs",
        "wire",
        "checks",
        "arguments",
        "credentials",
        "service_account",
        "supported_models",
    ),
    ("timer",),
    ("abort_signal", "ending", "transport"),
    ("reader", "silence", "connector", "trace"),
    ("call",),
    ("http_call",),
    ("model_list", "pictures", "tokens"),
    ("stream",),
    ("base_client",),
    ("clients",),
    ("registry", "auto_client"),
    ("sync",),
    ("integration", "screen", "demo", "ask", "conversation", "cli"),
)

# Within a row nobody imports a neighbour, except:
NEIGHBOURS = {
    "auto_client": {"registry"},
    "ask": {"screen"},
    "cli": {"ask", "conversation", "demo", "integration"},
    "conversation": {"ask", "screen"},
    "codecs": {"grammar", "wire"},
    "demo": {"screen"},
    "dialects": {"errors", "types"},
    "errors": {"types"},
    "request": {"errors"},
    "rules": {"plain"},
    "settings": {"plain"},
    "sse": {"errors"},
}

# `testing` knows nothing of the package, and only the demonstration, which shows it off, knows it.
# The public names of the package are for those above all layers; its version is for everyone.
ALLOWED = {
    part: {
        part,
        *(each for earlier in LAYERS[:row] for each in earlier),
        *NEIGHBOURS.get(part, ()),
    }
    for row, layer in enumerate(LAYERS)
    for part in layer
} | {"testing": {"testing"}}
ALLOWED["integration"] |= {"mmsp"}
ALLOWED["cli"] |= {"mmsp"}
ALLOWED["demo"] |= {"testing"}
FOR_EVERYONE = {"mmsp.__version__"}

PURE = {
    "arguments", "checks", "codecs", "dialects", "errors", "grammar", "items", "masking", "partial",
    "plain", "request", "rules", "settings", "sse", "synonyms", "types", "wire",
}  # fmt: skip

HTTP_LIBRARIES = (
    "aiohappyeyeballs", "aiohttp", "h11", "h2", "http.client", "http.server", "httpcore",
    "httptools", "httpx", "httpx2", "requests", "urllib.request", "urllib3", "websockets",
)  # fmt: skip
NOT_PURE = (
    "anyio", "asyncio", "concurrent", "multiprocessing", "select", "selectors", "signal", "socket",
    "ssl", "subprocess", "threading", "time", "trio", "uvloop", *HTTP_LIBRARIES,
)  # fmt: skip
SPEAK_HTTP = {"transport", "testing"}

LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text, and whether it is the `__init__` of a folder."""

    name: str
    source: str
    is_package: bool = False

    @classmethod
    def read(cls, path: Path) -> Module:
        names = path.relative_to(SOURCES).with_suffix("").parts
        is_package = names[-1] == "__init__"
        name = ".".join(names[:-1] if is_package else names)
        return cls(name, path.read_text(encoding="utf-8"), is_package)

    def imports(self) -> Iterator[tuple[int, str]]:
        """The line and full name of each thing imported: `from .a import b` gives `mmsp.a.b`."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)

    def loops(self) -> Iterator[int]:
        """The line of each loop; of comprehensions only those with `async for` count."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, LOOPS):
                yield node.lineno
            elif isinstance(node, ast.comprehension) and node.is_async:
                yield node.target.lineno

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folders = self.name.split(".")
        folders = folders[: len(folders) - node.level + self.is_package]
        return ".".join([*folders, *([node.module] if node.module else [])])


def part_of(name: str, clients: set[str]) -> str:
    """The part that `mmsp.a.b` belongs to; "mmsp" for the package itself."""
    _, _, inside = name.partition(".")
    first = inside.partition(".")[0]
    if first in clients:
        return "clients"
    return "cli" if first == "__main__" else first or "mmsp"


def is_within(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def faults(module: Module, clients: set[str]) -> list[str]:
    """What `module` does against the rules above, one line each."""
    part = part_of(module.name, clients)
    if part == "mmsp":  # its laziness is tested at the end of this file
        return []
    if part not in ALLOWED:
        return [f"{part} has no place in LAYERS yet"]
    found = []
    for line, name in module.imports():
        if is_within(name, ["mmsp"]):
            target = part_of(name, clients)
            target = target if target in ALLOWED else "mmsp"  # a public name
            if target not in ALLOWED[part] and name not in FOR_EVERYONE:
                found.append(f"line {line}: {part} must not import {target}")
        elif part in PURE and is_within(name, NOT_PURE):
            found.append(f"line {line}: {part} is pure and must not import {name}")
        elif part not in SPEAK_HTTP and is_within(name, HTTP_LIBRARIES):
            found.append(f"line {line}: {part} must leave HTTP to transport, not import {name}")
    if part == "clients" and module.name.endswith(".client"):
        found += [f"line {line}: a client holds no loop" for line in module.loops()]
    return found


CLIENTS = {path.parent.name for path in PACKAGE.glob("*/client.py")}
MODULES = [Module.read(path) for path in sorted(PACKAGE.rglob("*.py"))]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_keeps_the_rules(module: Module) -> None:
    assert faults(module, CLIENTS) == []


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("mmsp.grammar", "from .stream import Stream", "stream"),
        ("mmsp.grammar", "from mmsp.stream import Stream", "stream"),
        ("mmsp.grammar", "from mmsp import stream", "stream"),
        ("mmsp.grammar", "import mmsp.stream", "stream"),
        ("mmsp.grammar", "from . import stream", "stream"),
        ("mmsp.grammar", "def f():\n    from .call import Call", "call"),
        ("mmsp.grammar", "from mmsp import AutoLLMClient", "mmsp"),
        ("mmsp.grammar", "from .codecs import openai_chat", "codecs"),
        ("mmsp.codecs.openai_chat", "from ..transport import Exchange", "transport"),
        ("mmsp.codecs.openai_chat", "from ..vendor.client import Client", "clients"),
        ("mmsp.dialects.zai", "from ..codecs.openai_chat import encode", "codecs"),
        ("mmsp.abort_signal", "from .transport import Exchange", "transport"),
        ("mmsp.stream", "from .base_client import LLMClient", "base_client"),
        ("mmsp.stream", "from .testing import ScriptedProvider", "testing"),
        ("mmsp.vendor.client", "from ..registry import find", "registry"),
        ("mmsp.testing.script", "from ..types import Message", "types"),
        ("mmsp.testing.script", "import mmsp", "mmsp"),
    ],
)
def test_an_arrow_against_the_layers_is_found(name: str, source: str, target: str) -> None:
    (fault,) = faults(Module(name, source), {"vendor"})
    assert fault.endswith(f" must not import {target}")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("mmsp.sse", "import asyncio"),
        ("mmsp.sse", "from time import monotonic"),
        ("mmsp.wire", "from urllib import request"),
        ("mmsp.errors", "import http.client"),
        ("mmsp.request", "import aiohttp.web"),
        ("mmsp.codecs.openai_chat", "import json, ssl"),
        ("mmsp.dialects.zai", "if True:\n    import threading"),
        ("mmsp.call", "import httptools"),
        ("mmsp.call", "from httpx import AsyncClient"),
        ("mmsp.vendor.client", "import aiohappyeyeballs"),
    ],
)
def test_io_where_it_does_not_belong_is_found(name: str, source: str) -> None:
    (fault,) = faults(Module(name, source), {"vendor"})
    assert "pure" in fault or "HTTP" in fault


@pytest.mark.parametrize(
    "source",
    [
        "for each in (1, 2):\n    pass",
        "while True:\n    pass",
        "async def f(events):\n    async for event in events:\n        yield event",
        "async def f(events):\n    return [event async for event in events]",
    ],
)
def test_a_loop_in_a_client_is_found(source: str) -> None:
    (fault,) = faults(Module("mmsp.vendor.client", source), {"vendor"})
    assert fault.endswith("a client holds no loop")


def test_a_module_that_the_tables_do_not_name_is_found() -> None:
    assert faults(Module("mmsp.novelty", ""), set()) == ["novelty has no place in LAYERS yet"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("mmsp.errors", "from .types import FinishReason"),
        ("mmsp.sse", "import codecs, re"),
        ("mmsp.sse", "import timeit"),
        ("mmsp.request", "from urllib.parse import urlsplit"),
        ("mmsp.codecs.openai_chat", "from ..grammar import Assembler\nfrom . import json_frames"),
        ("mmsp.transport.pool", "import asyncio, ssl, httptools\nfrom .guarded import Socket"),
        ("mmsp.transport.pool", "from .. import __version__"),
        ("mmsp.vendor.client", "from ..base_client import LLMClient\nfrom .parts import part"),
        ("mmsp.vendor.parts", "for each in (1, 2):\n    pass"),
        ("mmsp.registry", "from .vendor.client import Client"),
        ("mmsp.integration.server", "from mmsp import AutoLLMClient\nimport asyncio"),
        ("mmsp.integration.server", "from mmsp import dumps"),
        ("mmsp.cli", "from .integration import server\nfrom . import demo"),
        ("mmsp.demo", "from .testing import ScriptedProvider\nfrom .screen import Screen"),
        ("mmsp.__main__", "from .cli import main"),
        ("mmsp.testing.provider", "import httptools\nfrom mmsp.testing import chat"),
    ],
)
def test_what_is_allowed_passes(name: str, source: str) -> None:
    assert faults(Module(name, source), {"vendor"}) == []


def test_the_init_of_a_folder_resolves_relative_imports_from_the_folder() -> None:
    module = Module("mmsp.codecs", "from .openai_chat import encode\nfrom ..call import Call", True)
    assert [name for _, name in module.imports()] == [
        "mmsp.codecs.openai_chat.encode",
        "mmsp.call.Call",
    ]


@pytest.mark.skipif(not (PACKAGE / "__init__.py").exists(), reason="there is no mmsp/__init__.py")
def test_importing_mmsp_loads_no_http_stack() -> None:
    probe = (
        "import sys; before = set(sys.modules); import mmsp; print(*(set(sys.modules) - before))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    loaded = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    own = [name for name in loaded if is_within(name, ["mmsp"])]
    assert [name for name in loaded if is_within(name, ["asyncio", "ssl", *HTTP_LIBRARIES])] == []
    assert [name for name in own if part_of(name, CLIENTS) not in {"mmsp", *PURE}] == []
