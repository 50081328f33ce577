"""The table of models: its shape, its prices, and that what it names exists."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any, get_args

import pytest

import mmsp
from mmsp import UnsupportedParameterError, list_supported_models, supported_models
from mmsp.registry import CLIENTS, family_of
from mmsp.supported_models import Modality

FACTS: list[Any] = json.loads(supported_models._FACTS.read_bytes(), parse_float=Decimal)
ROWS = [(endpoint, row) for endpoint in FACTS for row in endpoint["models"]]

# No client speaks to these yet.
NOT_YET = {"bedrock://us-east-1"}


def listed(model: str, base_url: str, currency: Any = "USD") -> Any:
    (found,) = (
        each
        for each in list_supported_models(currency)
        if (each["model"], each["base_url"]) == (model, base_url)
    )
    return found


def test_a_model_is_told_with_where_it_is_what_it_takes_and_what_it_costs() -> None:
    assert listed("gemini-4-argon", "https://generativelanguage.googleapis.com") == {
        "model": "gemini-4-argon",
        "base_url": "https://generativelanguage.googleapis.com",
        "client": "google-official",
        "input_modalities": ["Text", "Image", "Video", "Audio"],
        "output_modalities": ["Text"],
        "context_window": 1048576,
        "pricing": {
            "currency": "USD",
            "prompt_tokens": 4.0,
            "thoughts_tokens": 20.0,
            "response_tokens": 20.0,
            "cached_tokens": 0.2,
        },
    }


def test_what_nobody_publishes_is_left_out() -> None:
    image = listed("gemini-3.1-flash-lite-image", "https://generativelanguage.googleapis.com")
    assert "context_window" not in image
    assert "pricing" not in image
    embedding = listed("qwen3.7-text-embedding", "https://tokendance.space/gateway/v1")
    assert embedding["output_modalities"] == ["Embed"]
    assert embedding["pricing"] == {
        "currency": "USD",
        "prompt_tokens": 0.071429,
        "thoughts_tokens": 0.0,
        "response_tokens": 0.0,
    }


@pytest.mark.parametrize("currency", ["USD", "CNY"])
def test_every_price_is_exact_where_it_was_published_and_at_seven_yuan_elsewhere(
    currency: Any,
) -> None:
    models = list_supported_models(currency)
    assert len(models) == len(ROWS) > 100
    for model, (endpoint, row) in zip(models, ROWS, strict=True):
        assert ("pricing" in model) is ("price" in row)
        if "pricing" not in model:
            continue
        factor = {("USD", "CNY"): Decimal(7), ("CNY", "USD"): 1 / Decimal(7)}
        exact = factor.get((endpoint["currency"], currency), Decimal(1))
        prompt, output = (Decimal(row["price"][kind]) * exact for kind in ("prompt", "output"))
        pricing = model["pricing"]
        assert pricing["currency"] == currency
        assert pricing["prompt_tokens"] == float(round(prompt, 6))
        assert pricing["thoughts_tokens"] == pricing["response_tokens"] == float(round(output, 6))


def test_yuan_that_were_published_are_not_rounded() -> None:
    """A price of 13 yuan, kept in dollars with six decimals, would come back as 13.000001."""
    step = listed("step-5-preview", "https://tokendance.space/gateway/v1", "CNY")
    assert step["pricing"] == {
        "currency": "CNY",
        "prompt_tokens": 7.0,
        "thoughts_tokens": 20.0,
        "response_tokens": 20.0,
        "cached_tokens": 0.35,
    }


@pytest.mark.parametrize("currency", ["EUR", "usd", "", None, 7, ["USD"]])
def test_another_currency_is_refused_with_the_two_there_are(currency: Any) -> None:
    with pytest.raises(UnsupportedParameterError, match='"USD" or "CNY"') as caught:
        list_supported_models(currency)
    assert caught.value.parameter == "currency"


def test_each_call_gives_a_list_that_is_the_callers_own() -> None:
    first: Any = list_supported_models()
    first[0]["input_modalities"].append("Smell")
    first[0]["pricing"]["prompt_tokens"] = 0
    first[0]["model"] = ""
    first.clear()
    assert list_supported_models() == list_supported_models()
    assert "Smell" not in str(list_supported_models())
    assert list_supported_models()[0]["model"]


def test_the_facts_name_clients_that_exist_and_modalities_as_they_are_written() -> None:
    seen = set()
    for model in list_supported_models():
        seen.add((model["model"], model["base_url"]))
        assert {*model["input_modalities"], *model["output_modalities"]} <= {*get_args(Modality)}
        assert model["client"] in CLIENTS
        if CLIENTS[model["client"]].official and (family := family_of(model["model"])):
            assert family == model["client"]
        if model["base_url"] not in NOT_YET:
            mmsp.AutoLLMClient(model["model"], "a-key", model["base_url"], model["client"])
    assert len(seen) == len(ROWS)


def test_the_facts_are_read_when_they_are_asked_for() -> None:
    probe = "import sys, mmsp; print('mmsp.supported_models' in sys.modules); mmsp.list_supported_models; "
    probe += "print(sys.modules['mmsp.supported_models']._endpoints.cache_info().misses)"
    told = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    ).stdout.split()
    assert told == ["False", "0"]
