"""The table of a server: which models it serves, as whose, to whom. Reading and checking it.

    {"models": [{"model_id": "gpt-5.5", "api_key": "$OPENAI_API_KEY", "server_model_id": "fast"}],
     "api_keys": ["$TEAM_KEY"]}

A cell of `api_key`, `base_url`, `client_type` or a member of `api_keys` may name an environment
variable: `$NAME` or `${NAME}`. Only a file's cells are looked up; rows from code are taken as they are.
What is wrong with a table is told with its place, as `models[2].api_key`, before anything is built.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...plain import closest, kind_of

__all__ = ["ALLOWANCES", "ModelRow", "ServerConfig", "load_server_config", "read_table"]

ALLOWANCES = ("extra_body", "trace_id")  # config keys that a row has to allow

_NEEDED = ("model_id", "api_key", "server_model_id")
_OPTIONAL = ("base_url", "client_type")
_COLUMNS = (*_NEEDED, *_OPTIONAL, "allow")
_REFERABLE = ("api_key", "base_url", "client_type")
_OTHERS_USE = ("host", "port")  # of the playground, which keeps them in the same file
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One served model: `server_model_id` is what callers name, `model_id` what the provider is asked
    for. `allow` has the config keys that callers of this row may use besides the usual ones.
    """

    model_id: str
    api_key: str = field(repr=False)
    server_model_id: str
    base_url: str | None = None
    client_type: str | None = None
    allow: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A checked table. Without `api_keys` the server is open."""

    models: tuple[ModelRow, ...]
    api_keys: tuple[str, ...] = field(default=(), repr=False)


def load_server_config(path: str | Path) -> ServerConfig:
    """The table in a JSON file. Raises `ValueError`, which names the file and the place in it, and
    `OSError` for a file that cannot be read.
    """
    try:
        return _checked(_json(Path(path).read_bytes()), _looked_up)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_table(
    models: Sequence[Mapping[str, Any] | ModelRow], api_keys: Sequence[str] = ()
) -> ServerConfig:
    """The table in rows from code. Raises `ValueError`, which names the place."""
    rows = [_cells(row) if isinstance(row, ModelRow) else row for row in _list(models, "models")]
    return _checked({"models": rows, "api_keys": api_keys}, lambda text, place: text)


def _json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is no JSON: {error}") from None


def _checked(table: Any, look_up: Any) -> ServerConfig:
    if not isinstance(table, dict):
        raise ValueError(f"the table is {kind_of(table)}; it is an object with models and api_keys")
    _refuse_unknown(table, ("models", "api_keys", *_OTHERS_USE), "")
    rows = [
        _row(row, f"models[{at}]", look_up)
        for at, row in enumerate(_list(table.get("models", ()), "models"))
    ]
    if not rows:
        raise ValueError("models has no row: there is nothing to serve")
    _refuse_doubles(rows)
    keys = _list(table.get("api_keys", ()), "api_keys")
    named = [
        look_up(_text(key, at), at) for n, key in enumerate(keys) for at in (f"api_keys[{n}]",)
    ]
    return ServerConfig(tuple(rows), tuple(named))


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{place} is {kind_of(value)}; it is a list")
    return value


def _row(row: Any, place: str, look_up: Any) -> ModelRow:
    if not isinstance(row, Mapping):
        raise ValueError(f"{place} is {kind_of(row)}; a row is an object")
    _refuse_unknown(row, _COLUMNS, f"{place}.")
    cells = {name: _text(row.get(name), f"{place}.{name}") for name in _NEEDED}
    for name in _OPTIONAL:
        if row.get(name) not in (None, ""):
            cells[name] = _text(row[name], f"{place}.{name}")
    for name in _REFERABLE:
        if name in cells:
            cells[name] = look_up(cells[name], f"{place}.{name}")
    allow = _allowances(row.get("allow"), f"{place}.allow")
    return ModelRow(allow=allow, **{name: text for name, text in cells.items() if text})


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        is_ = "missing" if value is None else kind_of(value)
        raise ValueError(f"{place} is {is_}; it is a string")
    if not value.strip():
        raise ValueError(f"{place} is empty")
    return value


def _allowances(value: Any, place: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, frozenset | set):
        value = _list(value, place)
    for each in value:
        if each not in ALLOWANCES:
            raise ValueError(f"{place} may name {' and '.join(ALLOWANCES)}, not {each!r:.80}")
    return frozenset(value)


def _refuse_unknown(given: Mapping[Any, Any], known: Sequence[str], place: str) -> None:
    for name in given:
        if name not in known:
            near = closest(str(name), known)
            meant = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"{place}{name} is not known: {meant}")


def _refuse_doubles(rows: Sequence[ModelRow]) -> None:
    first: dict[str, int] = {}
    for at, row in enumerate(rows):
        before = first.setdefault(row.server_model_id, at)
        if before != at:
            raise ValueError(
                f"models[{at}].server_model_id is {row.server_model_id!r}, "
                f"which models[{before}] has already"
            )


def _looked_up(text: str, place: str) -> str:
    named = _REFERENCE.fullmatch(text.strip())
    if named is None:
        return text
    variable = named[1] or named[2]
    value = os.environ.get(variable, "")
    optional = place.endswith(_OPTIONAL)
    if not value.strip() and not (optional and variable in os.environ):
        is_ = "empty" if variable in os.environ else "not set"
        raise ValueError(f"{place} stands for the variable {variable}, which is {is_}")
    return value


def _cells(row: ModelRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COLUMNS}
