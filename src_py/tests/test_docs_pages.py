"""Pages that list what the code has list all of it, and nothing else."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mmsp import errors
from tests.test_layering import CLIENTS, LAYERS, MODULES, PACKAGE, part_of

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([^`]+)`")
FRAGMENTS = sorted((ROOT / "changelog.d").glob("+*"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_cells(text: str) -> list[list[str]]:
    """What stands in code in the first cell of each row of a table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [CODE.findall(row) for row in rows]


def error_classes() -> list[type[errors.MMSPError]]:
    public = [getattr(errors, name) for name in errors.__all__]
    return [
        each for each in public if isinstance(each, type) and issubclass(each, errors.MMSPError)
    ]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_the_page_of_errors_has_each_class(kind: type[errors.MMSPError]) -> None:
    text = page("docs/errors.md")
    tree = text.split("```")[1]
    assert kind.__name__ in tree
    if kind is errors.MMSPError:
        return
    when, _, what_to_do = text.split("```text")[1].partition("What to do about them:")
    assert f"`{kind.__name__}` |" in when
    assert f"\n| `{kind.__name__}` | " in what_to_do
    for field in kind.__init__.__annotations__.keys() - {"message", "client", "return"}:
        assert f"`{field}`" in text


def test_the_page_of_errors_has_no_class_that_is_not() -> None:
    known = {kind.__name__ for kind in error_classes()} | {"AbortError"}
    named = set(re.findall(r"\b[A-Z][A-Za-z]+Error\b", page("docs/errors.md")))
    assert {name for name in named - known if not hasattr(builtins, name)} == {"CancelledError"}


def test_the_architecture_has_the_layers_as_they_are() -> None:
    there = {part_of(module.name, CLIENTS) for module in MODULES}
    layers = [{each for each in layer if each in there} for layer in LAYERS]
    text = page("docs/architecture.md").partition("## Where what belongs")[2]
    told = [
        {"clients" if name.startswith("<client>") else name.rstrip("/") for name in names}
        for names in first_cells(text.partition("\n## ")[0])
    ]
    assert told == [layer for layer in layers if layer]


def test_the_map_of_the_readme_leads_to_all_there_is() -> None:
    text = page("README.md").partition("\n## Map")[2].partition("\n## ")[0]
    found: set[Path] = set()
    for names in first_cells(text):
        folder = (ROOT / names[0]).parent
        for name in names:
            place = next((at for at in (ROOT / name, folder / name) if at.exists()), None)
            assert name == "…" or place is not None, f"{name} is not there"
            if place is not None:
                found.add(place.resolve())
    parts = {
        each
        for each in PACKAGE.iterdir()
        if each.suffix == ".py" or ((each / "__init__.py").exists() and each.name not in CLIENTS)
    }
    missing = {
        each for each in parts if not any(each.resolve() in (at, *at.parents) for at in found)
    }
    assert {each.name for each in missing} == {"__init__.py"}


def test_the_readme_lists_every_page() -> None:
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in pages if f"](docs/{name})" not in page("README.md")] == []


def test_the_readme_and_make_name_the_same_targets() -> None:
    targets = set(re.findall(r"^\t@echo 'make ([a-z-]+)", page("Makefile"), re.MULTILINE))
    told = set(re.findall(r"make ([a-z]+(?:-[a-z]+)*)\b(?=`|  )", page("README.md")))
    assert told <= targets
    assert targets - told == {"format", "clean"}


def test_nobody_is_told_to_install_somebody_elses_package() -> None:
    told = [
        f"{path.name}: {line}"
        for path in [
            *ROOT.glob("*.md"),
            *(ROOT / "docs").rglob("*.md"),
            *PACKAGE.rglob("*.py"),
            *FRAGMENTS,
        ]
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install '?mmsp\b", line) and "ever `pip install mmsp`" not in line
    ]
    assert told == []


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_of_the_changelog_is_a_few_sentences(fragment: Path) -> None:
    kinds = [each["directory"] for each in _towncrier()["type"]]
    assert re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(kinds)})\.md", fragment.name)
    text = fragment.read_text(encoding="utf-8")
    assert text.endswith(".\n")
    assert len(text.splitlines()) == 1
    assert len(text) < 420


def test_the_readme_of_the_fragments_has_their_kinds() -> None:
    kinds = [each["directory"] for each in _towncrier()["type"]]
    assert [name for (name,) in first_cells(page("changelog.d/README.md"))] == kinds


def test_a_release_gathers_every_fragment() -> None:
    pytest.importorskip("towncrier")
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for fragment in FRAGMENTS:
        assert fragment.read_text(encoding="utf-8").strip() in done.stdout
    assert _towncrier()["start_string"] in page("CHANGELOG.md")


def _towncrier() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["tool"]["towncrier"]
    return found
