"""`list_supported_models`: which models are known, where they are served, and what they cost.

The facts stand in `supported_models.json`, a model a line, below the endpoint that serves them. To keep it
up: prices are list prices per million tokens, in the currency that the platform publishes them in; a
context window or price that nobody publishes is left out; no promotion is written down.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from .errors import UnsupportedParameterError
from .plain import argument_shown

__all__ = ["ModelPricing", "SupportedModel", "list_supported_models"]

Currency = Literal["USD", "CNY"]
Modality = Literal["Text", "Image", "Video", "Audio", "Embed"]

_FACTS = Path(__file__).with_suffix(".json")
_YUAN_PER_DOLLAR = 7
_DECIMALS = 6

# What is told of a row's price, and where it stands. Thinking costs what the answer costs.
_PRICES = {
    "prompt_tokens": "prompt",
    "thoughts_tokens": "output",
    "response_tokens": "output",
    "cached_tokens": "cached",
}


class ModelPricing(TypedDict):
    """List prices per million tokens; no `cached_tokens` where no such price is published."""

    currency: Currency
    prompt_tokens: float
    thoughts_tokens: float
    response_tokens: float
    cached_tokens: NotRequired[float]


class SupportedModel(TypedDict):
    """A model at one endpoint. `client` is the client type that speaks to it there.

    No `context_window` (tokens) or `pricing` where the platform publishes none.
    """

    model: str
    base_url: str
    client: str
    input_modalities: list[Modality]
    output_modalities: list[Modality]
    context_window: NotRequired[int]
    pricing: NotRequired[ModelPricing]


def list_supported_models(currency: Currency = "USD") -> list[SupportedModel]:
    """The models that are known to work, with their list prices in `currency`: "USD" or "CNY".

    A model that several endpoints serve is listed once for each. The list is the caller's own.
    Prices that a platform publishes in one currency are given in the other at 7 yuan a dollar.
    Raises `UnsupportedParameterError` for another currency.
    """
    if currency not in ("USD", "CNY"):
        raise UnsupportedParameterError(
            f'currency is "USD" or "CNY", not {argument_shown(currency)}',
            client="list_supported_models",
            parameter="currency",
        )
    return [
        _model(row, endpoint, currency) for endpoint in _endpoints() for row in endpoint["models"]
    ]


@cache
def _endpoints() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(_FACTS.read_bytes())
    return found


def _model(row: dict[str, Any], endpoint: dict[str, Any], currency: Currency) -> SupportedModel:
    model: SupportedModel = {
        "model": row["model"],
        "base_url": endpoint["base_url"],
        "client": row["client"],
        "input_modalities": list(row["input"]),
        "output_modalities": list(row["output"]),
    }
    if "context_window" in row:
        model["context_window"] = row["context_window"]
    if "price" in row:
        model["pricing"] = _pricing(row["price"], endpoint["currency"], currency)
    return model


def _pricing(price: dict[str, float], published: Currency, currency: Currency) -> ModelPricing:
    pricing: Any = {"currency": currency}
    for name, kind in _PRICES.items():
        if kind in price:
            pricing[name] = _exchanged(price[kind], published, currency)
    made: ModelPricing = pricing
    return made


def _exchanged(amount: float, published: Currency, currency: Currency) -> float:
    """`amount` as it was published, or in the other currency, rounded as prices are written."""
    if published == currency:
        return float(amount)
    other = amount * _YUAN_PER_DOLLAR if currency == "CNY" else amount / _YUAN_PER_DOLLAR
    return round(other, _DECIMALS)
