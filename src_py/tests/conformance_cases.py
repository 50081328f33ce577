"""The cases of `conformance/` as data: what each part's folders hold, and nothing else may be there."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "conformance"

# The client type whose codec and endpoint a wire's cases are about, unless a case names another.
WIRES = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "openai_embedding": "openai-embedding",
    "anthropic_messages": "ant-messages",
    "google_generate_content": "google-genai",
    "google_interactions": "google-official",
    "mmsp": "mmsp",
}

# What the answers of every wire that streams are tried with: a case of each name, or of the name that the
# wire has for it, or the reason (in brackets) why it cannot be.
STREAMING = sorted(WIRES.keys() - {"openai_embedding"})
MUST = {
    "text": {},
    "thinking": {"openai_chat": "reasoning"},
    "signed-thinking-and-a-call": {"openai_chat": "reasoning-details-signed"},
    "calls-interleaved": {
        "google_generate_content": "(its calls come whole)",
        "mmsp": "(its items are in order already)",
    },
    "call-without-arguments": {},
    "refusal": {
        "google_interactions": "(it has no word for it)",
        "mmsp": "(to it a refusal is text, or the finish content_filter)",
    },
    "finish-length": {},
    "arguments-cut-by-the-length": {"google_generate_content": "(its calls come whole)"},
    "error-first": {"openai_chat": "error-event"},
    "error-event": {"openai_chat": "error-chunk"},
    "no-usage": {},
    "unknown-events": {"openai_chat": "obfuscation-and-unknown-fields"},
    "unterminated-tail": {"openai_chat": "no-blank-line-at-the-end"},
    "cut-in-the-middle": {"mmsp": "no-stop"},
    "cut-inside-an-event": {},
    "json-error-with-status-200": {},
}

ABOUT = {"about", "sources"}
REQUEST = {"model", "messages"}
ANSWER = {"items"}


@dataclass(frozen=True)
class Form:
    """A form of `case.json`: the keys it must have, of which it has exactly one, and may have; and the
    names of the files beside it."""

    must: set[str]
    one_of: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    files: str = r"body\.(sse|json|html|txt)"
    bodies: tuple[int, int] = (0, 0)  # how many files there are, at least and at most

    def faults(self, case: Case) -> Iterator[str]:
        keys = case.facts.keys() - ABOUT
        yield from (f"key missing: {key}" for key in (self.must | ABOUT) - case.facts.keys())
        yield from (f"key unknown: {key}" for key in keys - self.must - self.may - self.one_of)
        if self.one_of and len(keys & self.one_of) != 1:
            yield f"not exactly one of {', '.join(sorted(self.one_of))}"
        files = [path.name for path in case.path.iterdir() if path.name != "case.json"]
        yield from (f"file unknown: {name}" for name in files if not re.fullmatch(self.files, name))
        least, most = self.bodies
        if not least <= len(files) <= most:
            yield f"{len(files)} files beside case.json, not {least} to {most}"


# A case of a wire is about a request, or about an answer.
ASKED = Form(REQUEST, {"request", "error"}, {"config", "base_url", "images", "client_type"})
ANSWERED = Form(
    ANSWER, {"stop", "error"}, {"base_url", "limits", "client_type", "unknown"}, bodies=(1, 1)
)
FORMS = {
    "sse": Form({"events"}, may={"limit", "too_large"}, bodies=(1, 1)),
    "interruption": Form(
        {"steps", "items", "outcome", "recorded"},
        may={"stop", "error", "reason"},
        files=r"\d\.sse",
        bodies=(0, 9),
    ),
    "errors": Form({"status", "headers", "error"}, may={"now", "secrets", "wire"}, bodies=(0, 1)),
}


@dataclass(frozen=True)
class Case:
    path: Path
    facts: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Case:
        return cls(path, json.loads((path / "case.json").read_text(encoding="utf-8")))

    @property
    def name(self) -> str:
        return self.path.relative_to(FOLDER).as_posix()

    @property
    def form(self) -> Form:
        part = self.name.partition("/")[0]
        if part == "wires":
            return ANSWERED if "items" in self.facts else ASKED
        return FORMS[part]

    @property
    def body(self) -> bytes:
        """The one file beside `case.json`; nothing where there is none."""
        files = [path for path in self.path.iterdir() if path.name != "case.json"]
        return files[0].read_bytes() if files else b""

    @property
    def client_type(self) -> str:
        wire = self.path.parent.name
        return self.facts.get("client_type") or WIRES[wire]

    def cuts(self) -> Iterator[list[bytes]]:
        """The body whole, byte by byte, and at random places, the same in each run."""
        body = self.body
        yield [body]
        yield [body[at : at + 1] for at in range(len(body))]
        dice = random.Random(self.name)
        for _ in range(3):
            places = sorted(dice.choices(range(len(body) + 1), k=dice.randint(1, 40)))
            ends = [*places, len(body)]
            yield [body[start:end] for start, end in zip([0, *places], ends, strict=True)]


def folders() -> Iterator[Path]:
    """Every folder that should be a case."""
    for part in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        within = sorted(part.iterdir())
        if part.name == "wires":
            within = [case for wire in within for case in sorted(wire.iterdir())]
        yield from within


def cases(form: str | Form) -> list[Case]:
    """The cases of a part, or of a form of the wires."""
    wanted = FORMS[form] if isinstance(form, str) else form
    found = (Case.read(path) for path in folders() if (path / "case.json").is_file())
    return [case for case in found if case.form is wanted]
