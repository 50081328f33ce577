"""What importing mmsp costs, and how long a program waits for its first client.

Each run is an interpreter of its own. Compiled modules are kept for the time of the measurement,
whatever the environment says; the first run of each program compiles, and does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .figures import Figure
from .rig import environment, median

__all__ = ["measure"]

IMPORT = """
import json, sys, time
begun = time.perf_counter()
import asyncio
between = time.perf_counter()
import mmsp
after = time.perf_counter()
mmsp.AutoLLMClient
done = time.perf_counter()
print(json.dumps({"asyncio": between - begun, "mmsp": after - between, "client": done - between}))
"""
LOADED = "import sys, json, mmsp; print(json.dumps(sorted(sys.modules)))"
READY = """
import mmsp, time
mmsp.AutoLLMClient("scripted", client_type="openai-chat", api_key="k", base_url="http://127.0.0.1/v1")
print(time.monotonic_ns())
"""
EMPTY = "import time; print(time.monotonic_ns())"
NOT_YET = (
    "aiohappyeyeballs", "aiohttp", "click", "google", "h11", "http.client", "httpcore", "httptools",
    "httpx", "opentelemetry", "prometheus_client", "redis", "rich", "starlette", "urllib.request",
    "uvicorn", "uvloop",
)  # fmt: skip


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    with _compiled_modules_kept():
        return _figures(15 if full else 7)


def _figures(runs: int) -> list[Figure]:
    imports = [json.loads(_python(IMPORT)) for _ in range(runs + 1)][1:]
    return [
        Figure.of_runs("import asyncio", _ms(imports, "asyncio"), "ms"),
        Figure.of_runs("import mmsp, over that", _ms(imports, "mmsp"), "ms", target=15),
        Figure.of_runs("and mmsp.AutoLLMClient, over that", _ms(imports, "client"), "ms"),
        Figure.of_runs(
            "from the start of Python to a client",
            [_until(READY) for _ in range(runs + 1)][1:],
            "ms",
            target=300,
            floor=median([_until(EMPTY) for _ in range(runs + 1)][1:]),
        ),
        Figure(
            name="HTTP libraries and extras that import mmsp loads",
            value=len(_loaded_too_early()),
            unit="",
            target=0,
        ),
    ]


@contextmanager
def _compiled_modules_kept() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(prefix="mmsp-benchmark-") as folder,
        environment(PYTHONDONTWRITEBYTECODE=None, PYTHONPYCACHEPREFIX=folder),
    ):
        yield


def _loaded_too_early() -> list[str]:
    loaded = json.loads(_python(LOADED))
    return [name for name in NOT_YET if name in loaded]


def _until(program: str) -> float:
    begun = time.monotonic_ns()
    return (int(_python(program)) - begun) / 1e6


def _ms(runs: list[dict[str, Any]], name: str) -> list[float]:
    return [each[name] * 1e3 for each in runs]


def _python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
