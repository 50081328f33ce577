"""One line per request in the log `mmsp.server`: what and how long, never what was said nor a key."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from .account import Account, Outcome

__all__ = ["JsonFormatter", "log_request", "set_up_log"]

_log = logging.getLogger("mmsp.server")

_LEVELS = {Outcome.FAILURE: logging.WARNING}


def log_request(account: Account) -> None:
    """`stream <id> model=… outcome=… first_event_ms=… ms=… request_id=… error=…`"""
    assert account.outcome is not None
    running = account.running
    fields = {
        "model": running.served.id,
        "outcome": account.outcome.value,
        "first_event_ms": _milliseconds(account.to_first_event),
        "ms": _milliseconds(account.total),
        "request_id": running.stream.request_id,
        "error": None if account.error is None else type(account.error).__name__,
    }
    said = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
    level = _LEVELS.get(account.outcome, logging.INFO)
    _log.log(level, "stream %s %s", running.id, said, extra={"mmsp": {"id": running.id} | fields})


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def set_up_log(level: str, *, as_json: bool = False) -> None:
    """Have this process log to stderr: the server from `level` on, everything else from WARNING on."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s [%(process)d] %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log.setLevel(level.upper())


class JsonFormatter(logging.Formatter):
    """Records as JSON, a line each; a request's fields are members of their own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
        }
        fields = getattr(record, "mmsp", None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
