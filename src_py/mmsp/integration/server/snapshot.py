"""`GET /v1/metrics`: the counters as one JSON object, for people and pages.

Latencies come from histograms, so that several workers can be added up: a percentile is the upper end of
the bucket that holds it, at most a quarter too high.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .metrics import Metrics

__all__ = ["Samples", "snapshot"]

_TOKENS = ("prompt", "cached", "thoughts", "response")
_OUTCOMES = {
    "successes": "success",
    "failures": "failure",
    "disconnects": "disconnect",
    "aborted": "aborted",
}
_REFUSED = ("unauthorized", "invalid_request", "unknown_model", "too_many")
_ALL = None


class Samples:
    """Prometheus samples that can be asked for, of one model or (None) of all."""

    def __init__(self, samples: Iterable[tuple[str, dict[str, str], float]]) -> None:
        self._by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in samples:
            self._by_name.setdefault(name, []).append((labels, value))

    def values(self, name: str, model: str | None = _ALL, **labels: str) -> list[float]:
        wanted = labels if model is _ALL else labels | {"model": model}
        return [
            value
            for found, value in self._by_name.get(name, ())
            if all(found.get(label) == word for label, word in wanted.items())
        ]

    def sum(self, name: str, model: str | None = _ALL, **labels: str) -> int:
        return round(sum(self.values(name, model, **labels)))

    def percentiles(self, name: str, model: str | None) -> dict[str, int | None]:
        """`{"p50", "p90"}` in milliseconds, by nearest rank; None without a value."""
        upper: dict[float, float] = {}
        for labels, count in self._by_name.get(f"{name}_bucket", ()):
            if model in (_ALL, labels.get("model")):
                edge = float(labels["le"])
                upper[edge] = upper.get(edge, 0) + count
        edges = sorted(upper.items())
        return {f"p{rank}": _at_rank(edges, rank / 100) for rank in (50, 90)}


def _at_rank(edges: list[tuple[float, float]], share: float) -> int | None:
    total = edges[-1][1] if edges else 0
    wanted = math.ceil(total * share)
    for edge, below in edges:
        if total and below >= wanted:
            return None if math.isinf(edge) else round(edge * 1000)
    return None


def snapshot(samples: Samples, metrics: Metrics, models: list[str]) -> dict[str, Any]:
    """All counters since the start, and those of each model."""
    now = time.time()
    return {
        "started_at": int(metrics.since),
        "since": int(metrics.since),
        "uptime_s": int(now - metrics.since),
        **_counts(samples, _ALL),
        "refused": {
            reason: samples.sum("mmsp_refused_total", reason=reason) for reason in _REFUSED
        },
        "last_request_at": _last(samples, _ALL),
        "errors": list(metrics.errors),
        "models": [_of_model(samples, metrics, model) for model in models],
    }


def _of_model(samples: Samples, metrics: Metrics, model: str) -> dict[str, Any]:
    outcome, error = metrics.last.get(model, (None, None))
    return {
        "id": model,
        **_counts(samples, model),
        "last_request_at": _last(samples, model),
        "last_outcome": outcome,
        "last_error": error,
    }


def _counts(samples: Samples, model: str | None) -> dict[str, Any]:
    requests = samples.sum("mmsp_requests_total", model)
    outcomes = {
        name: samples.sum("mmsp_requests_ended_total", model, outcome=outcome)
        for name, outcome in _OUTCOMES.items()
    }
    tokens = {kind: samples.sum("mmsp_tokens_total", model, kind=kind) for kind in _TOKENS}
    tokens_out = tokens["thoughts"] + tokens["response"]
    generating = sum(samples.values("mmsp_generation_seconds_total", model))
    return {
        "requests": requests,
        **outcomes,
        "in_flight": requests - sum(outcomes.values()),
        "success_rate": _rate(outcomes["successes"], outcomes["failures"]),
        "latency_ms": {
            "first_event": samples.percentiles("mmsp_first_event_seconds", model),
            "total": samples.percentiles("mmsp_request_seconds", model),
        },
        "tokens": tokens,
        "tokens_out": tokens_out,
        "generation_ms": round(generating * 1000),
        "tps": _per_second(tokens_out, generating),
    }


def _rate(successes: int, failures: int) -> float | None:
    known = successes + failures
    return round(successes / known, 4) if known else None


def _per_second(tokens: int, seconds: float) -> float | None:
    """With one decimal, rounded half up."""
    return math.floor(tokens / seconds * 10 + 0.5) / 10 if seconds else None


def _last(samples: Samples, model: str | None) -> float | None:
    last = max(samples.values("mmsp_last_request_timestamp_seconds", model), default=0.0)
    return round(last, 3) if last else None
