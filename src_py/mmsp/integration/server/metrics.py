"""What a server counts, for `GET /v1/metrics` and for Prometheus: one set of counters for both.

Counting begins once a request is checked and its model found. With several workers the counters lie in
files that all of them share (prometheus-client's multiprocess mode, on when PROMETHEUS_MULTIPROC_DIR is
set before this module is loaded), so each of them shows the totals of all; the latest errors are those of
the worker that is asked.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from .account import Account, Outcome
from .snapshot import Samples, snapshot

__all__ = ["Metrics"]

_KEPT_ERRORS = 100
_LONGEST = 500  # characters of an error that are kept
_PER_SECOND = [round(0.001 * 1.25**step, 6) for step in range(62)]  # up to about 800 s
_TOKENS = ("prompt", "cached", "thoughts", "response")


class Metrics:
    """The counters of one app. `since` is when counting began, in seconds since 1970."""

    def __init__(self, since: float | None = None) -> None:
        self.since = time.time() if since is None else since
        self.errors: deque[dict[str, Any]] = deque(maxlen=_KEPT_ERRORS)
        self.last: dict[str, tuple[Outcome, dict[str, Any] | None]] = {}
        self._registry = CollectorRegistry()
        of_model: dict[str, Any] = {"labelnames": ("model",), "registry": self._registry}
        self._requests = Counter("mmsp_requests", "Requests for a model that is served", **of_model)
        self._ended = Counter(
            "mmsp_requests_ended",
            "Requests by their outcome: success, failure, disconnect, aborted",
            ("model", "outcome"),
            registry=self._registry,
        )
        self._running = Gauge(
            "mmsp_streams", "Streams that run now", multiprocess_mode="livesum", **of_model
        )
        self._last_at = Gauge(
            "mmsp_last_request_timestamp_seconds",
            "When the last request came",
            multiprocess_mode="max",
            **of_model,
        )
        self._tokens = Counter(
            "mmsp_tokens", "Tokens of answers", ("model", "kind"), registry=self._registry
        )
        self._generating = Counter(
            "mmsp_generation_seconds", "From the first event to the end, of successes", **of_model
        )
        self._first = Histogram(
            "mmsp_first_event_seconds",
            "To the first event, of successes",
            buckets=_PER_SECOND,
            **of_model,
        )
        self._total = Histogram(
            "mmsp_request_seconds", "To the end, of successes", buckets=_PER_SECOND, **of_model
        )
        self._refused = Counter(
            "mmsp_refused", "Requests that were refused", ("reason",), registry=self._registry
        )

    # ---- counting

    def refused(self, reason: str) -> None:
        """`unauthorized`, `invalid_request`, `unknown_model` or `too_many`."""
        self._refused.labels(reason).inc()

    def began(self, model: str) -> None:
        self._requests.labels(model).inc()
        self._running.labels(model).inc()
        self._last_at.labels(model).set(time.time())

    def ended(self, account: Account) -> None:
        assert account.outcome is not None
        model = account.running.served.id
        self._running.labels(model).dec()
        self._ended.labels(model, account.outcome.value).inc()
        if account.outcome is Outcome.SUCCESS:
            self._succeeded(model, account)
        self._remember(model, account)

    def lost(self, running: Mapping[str, int]) -> None:
        """So many streams of each model ended unseen, with the process that held them."""
        for model, count in running.items():
            self._ended.labels(model, Outcome.FAILURE.value).inc(count)

    def _succeeded(self, model: str, account: Account) -> None:
        first = account.total if account.to_first_event is None else account.to_first_event
        self._first.labels(model).observe(first)
        self._total.labels(model).observe(account.total)
        self._generating.labels(model).inc(max(account.total - first, 0.001))
        for kind in _TOKENS:
            count = (account.usage or {}).get(f"{kind}_tokens")
            if count:
                self._tokens.labels(model, kind).inc(count)

    def _remember(self, model: str, account: Account) -> None:
        assert account.outcome is not None
        kept = self.last.get(model, (None, None))[1]
        if account.outcome is Outcome.FAILURE and account.error is not None:
            said = str(account.error)[:_LONGEST] or type(account.error).__name__
            kept = {"at": round(time.time(), 3), "message": said}
            self.errors.appendleft({"at": kept["at"], "model": model, "message": said})
        self.last[model] = account.outcome, kept

    # ---- showing

    def prometheus(self) -> bytes:
        """The text format of Prometheus, 0.0.4."""
        return generate_latest(self._shared())

    def snapshot(self, models: Iterable[str]) -> dict[str, Any]:
        """What `GET /v1/metrics` answers, with the models in this order."""
        return snapshot(Samples(self._samples()), self, list(models))

    def _samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for family in self._shared().collect():
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value

    def _shared(self) -> CollectorRegistry:
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if not folder:
            return self._registry
        shared = CollectorRegistry()
        collector: Any = MultiProcessCollector  # it has no types
        collector(shared, folder)
        return shared
