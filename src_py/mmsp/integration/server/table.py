"""`Table`: the models that are served, each with the client that asks its provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...base_client import LLMClient
from ...registry import find_client
from .config import ModelRow, ServerConfig
from .keys import Keys

__all__ = ["Served", "Table"]


@dataclass(frozen=True, slots=True)
class Served:
    """One row, and its client, which all calls of this model share."""

    row: ModelRow
    client: LLMClient

    @property
    def id(self) -> str:
        return self.row.server_model_id

    @property
    def client_name(self) -> str:
        return type(self.client).__name__


class Table:
    """What a server serves at one time. Raises `ValueError` for a row whose client cannot be made."""

    def __init__(self, config: ServerConfig) -> None:
        self.keys = Keys(config.api_keys)
        self._served = {
            row.server_model_id: Served(row, _client(at, row))
            for at, row in enumerate(config.models)
        }

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def get(self, model: str) -> Served | None:
        return self._served.get(model)

    @property
    def ids(self) -> list[str]:
        """What callers may name, in the table's order."""
        return list(self._served)


def _client(at: int, row: ModelRow) -> LLMClient:
    try:
        kind = find_client(row.model_id, row.client_type).load()
        return kind(row.model_id, row.api_key, row.base_url)
    except (ValueError, TypeError, ImportError) as error:
        raise ValueError(f"models[{at}] ({row.server_model_id}): {error}") from None
