"""What is wrong with a server's table is told with its place, whether it comes from a file or from code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mmsp.integration.server import (
    ModelRow,
    create_server_app,
    load_server_config,
)
from mmsp.integration.server.config import read_table
from mmsp.integration.server.table import Table

ROW = {"model_id": "m", "api_key": "sk-upstream", "server_model_id": "fast"}


def without(name: str) -> dict[str, Any]:
    return {column: cell for column, cell in ROW.items() if column != name}


# Tables, and what has to be said of them.
FAULTS: dict[str, tuple[Any, str]] = {
    "a list": ([], "the table is"),
    "a word": ("models", "the table is"),
    "no models": ({}, "models has no row"),
    "no rows": ({"models": []}, "models has no row"),
    "models is an object": ({"models": {}}, "models is"),
    "models is null": ({"models": None}, "models is"),
    "api_keys is a string": ({"models": [ROW], "api_keys": "key"}, "api_keys is"),
    "api_keys is null": ({"models": [ROW], "api_keys": None}, "api_keys is"),
    "an empty key": ({"models": [ROW], "api_keys": ["a", ""]}, "api_keys[1] is empty"),
    "a blank key": ({"models": [ROW], "api_keys": [" "]}, "api_keys[0] is empty"),
    "a number as a key": ({"models": [ROW], "api_keys": [1]}, "api_keys[0] is"),
    "a row that is a list": ({"models": [ROW, []]}, "models[1] is"),
    "a row that is null": ({"models": [None]}, "models[0] is"),
    **{f"no {name}": ({"models": [without(name)]}, f"models[0].{name} is missing") for name in ROW},
    **{
        f"an empty {name}": ({"models": [ROW | {name: ""}]}, f"models[0].{name} is empty")
        for name in ROW
    },
    **{
        f"{name} is a number": ({"models": [ROW | {name: 1}]}, f"models[0].{name} is")
        for name in (*ROW, "base_url", "client_type")
    },
    "twice the same id": (
        {"models": [ROW, ROW | {"server_model_id": "b"}, ROW]},
        "models[2].server_model_id is 'fast', which models[0] has already",
    ),
    "an unknown column": ({"models": [ROW | {"base_ur": "x"}]}, "did you mean 'base_url'?"),
    "an unknown member": ({"models": [ROW], "api_key": ["k"]}, "did you mean 'api_keys'?"),
    "an unknown allowance": (
        {"models": [ROW | {"allow": ["everything"]}]},
        "models[0].allow may name extra_body and trace_id",
    ),
    "allow is a word": ({"models": [ROW | {"allow": "trace_id"}]}, "models[0].allow is"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_file_is_told_with_the_file_and_the_place(fault: str, tmp_path: Path) -> None:
    table, said = FAULTS[fault]
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError) as caught:
        load_server_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "sk-upstream" not in str(caught.value)


FROM_CODE = [
    name
    for name, (table, _) in FAULTS.items()
    if isinstance(table, dict) and not table.keys() - {"models", "api_keys"}
]


@pytest.mark.parametrize("fault", FROM_CODE)
def test_a_fault_in_rows_from_code_is_told_with_the_place(fault: str) -> None:
    table, said = FAULTS[fault]
    with pytest.raises(ValueError) as caught:
        create_server_app(table.get("models", []), table.get("api_keys", ()))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "nul", "{'models': []}", '{"models": [1,]}', "\xff"])
def test_what_is_no_json_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"table\.json: .*JSON"):
        load_server_config(path)


@pytest.mark.parametrize("form", ["${}", "${{{}}}"])
def test_a_cell_may_stand_for_a_variable(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {
        name: form.format(f"MMSP_TEST_{name.upper()}")
        for name in ("api_key", "base_url", "client_type")
    }
    for name in cells:
        monkeypatch.setenv(f"MMSP_TEST_{name.upper()}", f"the {name}")
    monkeypatch.setenv("MMSP_TEST_KEY", "the key")
    path = tmp_path / "table.json"
    table = {"models": [ROW | cells], "api_keys": ["plain", form.format("MMSP_TEST_KEY")]}
    path.write_text(json.dumps(table))
    config = load_server_config(path)
    (row,) = config.models
    assert (row.api_key, row.base_url, row.client_type) == tuple(f"the {name}" for name in cells)
    assert config.api_keys == ("plain", "the key")


@pytest.mark.parametrize("name", ["model_id", "server_model_id"])
def test_ids_are_literal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMSP_TEST", "found")
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"models": [ROW | {name: "$MMSP_TEST"}]}))
    assert getattr(load_server_config(path).models[0], name) == "$MMSP_TEST"


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({"models": [ROW | {"api_key": "$MMSP_TEST"}]}, "models[0].api_key"),
        ({"models": [ROW | {"base_url": "${MMSP_TEST}"}]}, "models[0].base_url"),
        ({"models": [ROW | {"client_type": "$MMSP_TEST"}]}, "models[0].client_type"),
        ({"models": [ROW], "api_keys": ["k", "$MMSP_TEST"]}, "api_keys[1]"),
    ],
)
def test_a_variable_that_is_not_set_is_told_with_its_place(
    table: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MMSP_TEST", raising=False)
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError) as caught:
        load_server_config(path)
    assert str(caught.value) == (
        f"{path}: {place} stands for the variable MMSP_TEST, which is not set"
    )


def test_rows_from_code_are_taken_literally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMSP_TEST", "found")
    config = read_table([ROW | {"api_key": "$MMSP_TEST"}], ["${MMSP_TEST}"])
    assert config.models[0].api_key == "$MMSP_TEST"
    assert config.api_keys == ("${MMSP_TEST}",)


@pytest.mark.parametrize("empty", [None, "", "missing"])
@pytest.mark.parametrize("name", ["base_url", "client_type"])
def test_an_optional_cell_may_be_empty(name: str, empty: str | None) -> None:
    row = ROW if empty == "missing" else ROW | {name: empty}
    assert getattr(read_table([row]).models[0], name) is None


def test_host_and_port_in_a_file_are_for_others(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"models": [ROW], "host": "::1", "port": 1}))
    assert len(load_server_config(path).models) == 1


def test_a_row_whose_client_cannot_be_made_is_told_with_its_id() -> None:
    config = read_table([ROW | {"client_type": "openai-chat"}, ROW | {"server_model_id": "odd"}])
    with pytest.raises(ValueError, match=r"models\[1\] \(odd\): "):
        Table(config)


def test_structure_is_checked_before_any_client_is_made() -> None:
    rows = [ROW | {"client_type": "nobody"}, without("api_key")]
    with pytest.raises(ValueError, match=r"models\[1\]\.api_key is missing"):
        create_server_app(rows)


def test_a_table_shows_no_key() -> None:
    config = read_table([ModelRow("m", "sk-upstream", "fast")], ["team-key"])
    for shown in (repr(config), repr(config.models[0])):
        assert "sk-upstream" not in shown
        assert "team-key" not in shown
