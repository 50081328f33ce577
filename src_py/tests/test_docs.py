"""The documentation is true: its Python blocks run as they stand, and its links lead somewhere.

A block is a program of its own, run in an empty folder with warnings as errors. Its environment
points to a scripted provider that speaks Chat Completions and gives everybody the same short
answer, so a block that asks a model works without a key. A block that opens with "```python no-run"
is only compiled: it shows a part of a program, or needs what a test has not got.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mmsp.testing import Answer, ScriptedProvider, chat, say

SOURCES = Path(__file__).parent.parent
ROOT = SOURCES.parent

TIME_LIMIT = 20.0

# What Python prints, without failing, about things that were not closed or not awaited.
COMPLAINTS = ("Exception ignored", "never awaited", "never retrieved", "Task was destroyed")

FENCE = re.compile(r"^ *(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?(?P<target>[^)\s>]+)")
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:|^//", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """A fenced block: the line of its first line, the words behind its fence, its text."""

    line: int
    info: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Page:
    """A Markdown file, taken apart into fenced blocks and prose, both with line numbers."""

    name: str
    blocks: tuple[Block, ...]
    prose: tuple[tuple[int, str], ...]

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls.parse(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, name: str, text: str) -> Page:
        blocks: list[Block] = []
        prose: list[tuple[int, str]] = []
        lines = enumerate(text.splitlines(), start=1)
        for number, line in lines:
            fence = FENCE.match(line)
            if not fence:
                prose.append((number, line))
                continue
            inside = []
            for _, each in lines:
                if each.strip() == fence["ticks"]:
                    break
                inside.append(each)
            info = tuple(fence["info"].split())
            blocks.append(Block(number + 1, info, textwrap.dedent("\n".join(inside)) + "\n"))
        return cls(name, tuple(blocks), tuple(prose))

    def links(self) -> Iterator[tuple[int, str]]:
        for number, line in self.prose:
            for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                yield number, match["target"]

    def anchors(self) -> set[str]:
        """What a link's "#…" may name: the headings, spelt as code hosts spell them."""
        found: Counter[str] = Counter()
        anchors = set()
        for _, line in self.prose:
            if heading := HEADING.match(line):
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"])
                slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
                anchors.add(f"{slug}-{found[slug]}" if found[slug] else slug)
                found[slug] += 1
        return anchors


def markdown_files(folder: Path) -> Iterator[Path]:
    """All of them, but for hidden folders and what package managers bring."""
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != "node_modules"
        )
        yield from (Path(path, name) for name in sorted(files) if name.endswith(".md"))


def dead_links(page: Page, root: Path) -> Iterator[str]:
    for line, link in page.links():
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (root / page.name).parent / path if path else root / page.name
        if not target.exists():
            yield f"{page.name}:{line}: {path} does not exist"
        elif not target.resolve().is_relative_to(root):
            yield f"{page.name}:{line}: {path} is outside the project"
        elif anchor and target.suffix == ".md":
            text = target.read_text(encoding="utf-8")
            if anchor not in Page.parse(target.name, text).anchors():
                yield f"{page.name}:{line}: {path or page.name} has no heading #{anchor}"


def run(block: Block, folder: Path, provider: ScriptedProvider) -> str | None:
    """Runs the block in `folder`; what is wrong with it, or None."""
    program = folder / "block.py"
    program.write_text(block.text, encoding="utf-8")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "PYTHONPATH": str(SOURCES),
        "PYTHONIOENCODING": "utf-8",
        "OPENAI_API_KEY": "scripted",
        "OPENAI_BASE_URL": provider.base_url,
    }
    command = [sys.executable, "-W", "error", "-X", "dev", str(program)]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        return f"not done after {TIME_LIMIT:g} s\n{output}"
    if done.returncode:
        return f"exit status {done.returncode}\n{done.stdout}"
    if any(complaint in done.stdout for complaint in COMPLAINTS):
        return f"not everything was closed\n{done.stdout}"
    return None


PAGES = [Page.read(path) for path in markdown_files(ROOT)]
PYTHON_BLOCKS = [
    pytest.param(block, id=f"{page.name}:{block.line}")
    for page in PAGES
    if page.name == "README.md" or page.name.startswith("docs/")
    for block in page.blocks
    if block.info[:1] == ("python",)
]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(Answer(say(chat.answer("Hello from the scripted provider.")))) as started:
        yield started


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_a_python_block_works(block: Block, tmp_path: Path, provider: ScriptedProvider) -> None:
    if "no-run" in block.info:
        compile(block.text, "block", "exec")
    else:
        assert run(block, tmp_path, provider) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Page) -> None:
    assert list(dead_links(page, ROOT)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("raise ValueError('broken')", "broken"),
        ("import warnings\nwarnings.warn('old', DeprecationWarning)", "DeprecationWarning"),
        ("import socket\nsocket.socket()", "Exception ignored"),
        ("async def f(): pass\nf()", "never awaited"),
    ],
)
def test_a_block_that_does_not_work_is_found(
    text: str, fault: str, tmp_path: Path, provider: ScriptedProvider
) -> None:
    assert fault in str(run(Block(1, ("python",), text), tmp_path, provider))


def test_a_block_that_never_ends_is_found(
    tmp_path: Path, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TIME_LIMIT", 1.0)
    text = "print('begun', flush=True)\nimport threading\nthreading.Event().wait()"
    fault = str(run(Block(1, ("python",), text), tmp_path, provider))
    assert fault.startswith("not done after 1 s")
    assert "begun" in fault


def test_a_block_finds_the_scripted_provider(tmp_path: Path, provider: ScriptedProvider) -> None:
    text = """
        import os, urllib.request
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        with urllib.request.urlopen(url, data=b"{}") as answer:
            assert answer.read().rstrip().endswith(b"data: [DONE]")
    """
    assert run(Block(1, ("python",), textwrap.dedent(text)), tmp_path, provider) is None


def test_a_page_is_taken_apart_into_blocks_and_prose() -> None:
    text = (
        "# Title\n\n```python no-run\n[a](b)\n```\n- x\n  ````text\n  ```\n  ````\nend [c](d.md)\n"
    )
    page = Page.parse("page.md", text)
    assert page.blocks == (
        Block(4, ("python", "no-run"), "[a](b)\n"),
        Block(8, ("text",), "```\n"),
    )
    assert list(page.links()) == [(10, "d.md")]


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Two words, `code`\n", encoding="utf-8")
    lines = [
        "# Here",
        "[good](other.md) [good](other.md#two-words-code) [good](#here) [good](https://x.test/a)",
        "[bad](missing.md) [bad](other.md#three-words) [bad](#there) `[not](a-link)`",
    ]
    (tmp_path / "page.md").write_text("\n".join(lines), encoding="utf-8")
    page = Page.parse("page.md", "\n".join(lines))
    assert list(dead_links(page, tmp_path)) == [
        "page.md:3: missing.md does not exist",
        "page.md:3: other.md has no heading #three-words",
        "page.md:3: page.md has no heading #there",
    ]
