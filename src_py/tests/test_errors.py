"""Errors are plain data: they can be copied, pickled and told apart."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

import mmsp
from mmsp import errors
from mmsp.errors import MMSPError

SAMPLES = {
    "model": "m", "client": "C", "client_type": "c", "api_key_env": "K", "base_url_env": "U",
    "parameter": "p", "item_type": "text.done", "operation": "o", "phase": "connect",
    "seconds": 1.5, "tool_name": "t", "tool_call_id": "i", "raw_arguments_length": 3,
    "raw_arguments_preview": "{", "event": "e", "path": "$[0].role",
}  # fmt: skip

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, MMSPError) and kind.__name__ in errors.__all__ and kind is not MMSPError
]


def make(kind: type[MMSPError]) -> MMSPError:
    wanted = inspect.signature(kind).parameters.values()
    fields = {
        each.name: SAMPLES[each.name]
        for each in wanted
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    }
    return kind("what happened", **fields)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_copying_and_pickling(kind: type[MMSPError]) -> None:
    error = make(kind)
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is kind
        assert again.args == error.args == ("what happened",)
        assert vars(again) == vars(error)
        assert isinstance(again.retryable, bool)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_one_of_ours_and_has_a_docstring(kind: type[MMSPError]) -> None:
    assert issubclass(kind, MMSPError)
    assert issubclass(kind, ValueError)
    assert kind.__doc__


@pytest.mark.parametrize("kind", CLASSES)
def test_every_attribute_of_an_error_is_in_the_docs(kind: type[MMSPError]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
    fields = page.partition("What to do about them:")[0]
    (row,) = [line for line in fields.splitlines() if f"| `{kind.__name__}` |" in line]
    documented = set(re.findall(r"`(\w+)`", row)) | {"client"}  # which the page tells of all
    assert documented >= set(vars(make(kind)))


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_is_shown_by_its_message_alone(kind: type[MMSPError]) -> None:
    assert str(make(kind)) == "what happened"
    assert repr(make(kind)) == f"{kind.__name__}('what happened')"


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_can_be_imported_from_the_package(kind: type[MMSPError]) -> None:
    assert getattr(mmsp, kind.__name__) is kind
