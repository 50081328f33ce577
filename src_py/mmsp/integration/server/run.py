"""`start_server`: run a server until it is told to stop, in this process or in several."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...abort_signal import AbortSignal
from .app import ServerApp, Settings
from .config import ModelRow, ServerConfig, load_server_config, read_table
from .listening import base_url, bind, check_certificate, raise_descriptor_limit
from .log import set_up_log
from .options import HOST, PORT, Options
from .runner import Runner, on_signals, when_aborted

__all__ = ["announce_server", "start_server"]

_SETTINGS = frozenset(each.name for each in dataclasses.fields(Settings))
_SHARED = frozenset({"debug", "workers"})  # options of the server and of its app


def start_server(
    models: Sequence[Mapping[str, Any] | ModelRow] | None = None,
    api_keys: Sequence[str] = (),
    *,
    config: ServerConfig | str | os.PathLike[str] | None = None,
    host: str = HOST,
    port: int = PORT,
    stop: AbortSignal | None = None,
    announce: Callable[..., object] | None = None,
    **options: Any,
) -> None:
    """Serve the table in `models` and `api_keys`, or in `config` (a file, or a table that is loaded), until
    SIGTERM, SIGINT or `stop`.

    `options` are those of `Options` and of the app's `Settings`. `announce` is called as `announce_server`
    is, which it is by default, once the server listens. SIGHUP loads a file anew. With several workers this
    starts processes by `multiprocessing`, so a script calls it under `if __name__ == "__main__":`.

    Raises `ValueError` for a bad table or option and `OSError` where it cannot listen; both before a
    caller can connect.
    """
    load = _loader(models, api_keys, config)
    run_server(load, options_of(host=host, port=port, **options), stop, announce)


def announce_server(config: ServerConfig, host: str, port: int, *, tls: bool = False) -> None:
    """Print where the server is, what it serves, and that it is open if it has no keys."""
    lines = [
        f"MMSP server: {base_url(host, port, tls=tls)}",
        f"Models: {', '.join(row.server_model_id for row in config.models)}",
    ]
    if not config.api_keys:
        lines.append("It is open: there are no api_keys, so whoever reaches it may use it.")
    print("\n".join(lines), flush=True)


def options_of(**given: Any) -> Options:
    """The options in one flat list of names."""
    settings = {name: given[name] for name in _SETTINGS & given.keys()}
    settings.setdefault("since", time.time())
    own = {name: value for name, value in given.items() if name not in _SETTINGS - _SHARED}
    return Options(**own, settings=Settings(**settings))


Load = Callable[[], ServerConfig]


def _loader(models: Any, api_keys: Any, config: Any) -> Load:
    if (models is None) == (config is None):
        raise ValueError("a server is started with models or with config")
    if config is None:
        return _always(read_table(models, api_keys))
    if api_keys:
        raise ValueError("api_keys go with models; a config has its own")
    if isinstance(config, ServerConfig):
        return _always(config)
    path = Path(config)
    return lambda: load_server_config(path)


def _always(config: ServerConfig) -> Load:
    return lambda: config


def run_server(
    load: Load, options: Options, stop: AbortSignal | None, announce: Callable[..., object] | None
) -> None:
    config = load()
    # What cannot be served is told before anything listens.
    app = ServerApp(config, options.settings)
    check_certificate(options.certfile, options.keyfile)
    raise_descriptor_limit()
    listeners = bind(options.host, options.port)
    try:
        if options.log_level is not None:
            set_up_log(options.log_level, as_json=options.log_json)
        port = listeners[0].getsockname()[1]
        (announce or announce_server)(config, options.host, port, tls=options.certfile is not None)
        if options.workers == 1:
            serving = _serve(app, load, options, listeners, stop)
        else:
            serving = _supervise(config, load, options, listeners, stop)
        asyncio.run(serving, debug=options.debug or None)
    finally:
        for each in listeners:
            each.close()


async def _serve(
    app: ServerApp,
    load: Load,
    options: Options,
    listeners: list[socket.socket],
    stop: AbortSignal | None,
) -> None:
    runner = Runner(app, listeners, options)
    handlers: dict[signal.Signals, Callable[[], object]] = {
        signal.SIGTERM: runner.stop,
        signal.SIGINT: runner.stop,
        signal.SIGHUP: lambda: runner.replace_table(load),
    }
    with on_signals(handlers), when_aborted(stop, runner.stop):
        await runner.run()


async def _supervise(
    config: ServerConfig,
    load: Load,
    options: Options,
    listeners: list[socket.socket],
    stop: AbortSignal | None,
) -> None:
    from .totals import shared_totals  # one process needs none of this
    from .workers import Supervisor

    with shared_totals() as totals:
        await Supervisor(config, options, listeners, totals).run(load, stop)
