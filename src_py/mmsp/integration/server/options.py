"""`Options`: how a server is run, as the command line and `start_server` are told."""

from __future__ import annotations

from dataclasses import dataclass, field

from .app import Settings

__all__ = ["HOST", "PORT", "Options"]

HOST = "127.0.0.1"
PORT = 25752


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """- `host`, `port`: where it listens; port 0 is any free one.
    - `workers`: processes that share the work.
    - `grace`: seconds that streams have when the server is told to stop.
    - `certfile`, `keyfile`: for HTTPS, in PEM; the key may be in the certificate's file.
    - `log_level`: None leaves the log as the program has set it up (a worker's is silent then, but for
      warnings); a level has it written to stderr, in JSON if `log_json` says so.
    - `debug`: asyncio's debug mode, and faults shown to callers.
    - `settings`: those of the app.
    """

    host: str = HOST
    port: int = PORT
    workers: int = 1
    grace: float = 30.0
    certfile: str | None = None
    keyfile: str | None = None
    log_level: str | None = None
    log_json: bool = False
    debug: bool = False
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers is {self.workers}; a server has at least one")
        if not self.grace >= 0:
            raise ValueError(f"grace is {self.grace}; it is a number of seconds")
        if self.keyfile is not None and self.certfile is None:
            raise ValueError("keyfile needs certfile")
