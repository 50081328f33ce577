"""A scripted provider in a process of its own, for measurements where it must not share the
interpreter.

It is read as a `ScriptedProvider` is, by blocking calls. What it returns are snapshots: take them
after the wait.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import checks
from .as_json import Json, answer_to_json, record_from_json, request_from_json
from .connection import Connect, Hello, Manners
from .records import ConnectionRecord, ReceivedRequest
from .script import Answer, check_answers

LONGEST_STOP = 5.0
KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (TimeoutError, TypeError, ValueError)
}


class ProviderProcess:
    """A context manager; answers and options are those of `ScriptedProvider`."""

    def __init__(
        self,
        *answers: Answer,
        tls: bool = False,
        never_accept: bool = False,
        tls_hello: Hello = "answer",
        connect: Connect = "answer",
        tunnel_tls: Hello = "answer",
        read_body: bool = True,
        ignore_eof: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        Manners(
            host=host,
            tls=tls,
            tls_hello=tls_hello,
            connect=connect,
            tunnel_tls=tunnel_tls,
            read_body=read_body,
            ignore_eof=ignore_eof,
        )  # a mistake is told here, not by the other process
        checks.flag("never_accept", never_accept)
        check_answers(answers)
        self._answers = answers
        self._arguments = [
            f"--host={host}",
            f"--tls-hello={tls_hello}",
            f"--connect={connect}",
            f"--tunnel-tls={tunnel_tls}",
            *(["--tls"] if tls else []),
            *(["--never-accept"] if never_accept else []),
            *([] if read_body else ["--no-read-body"]),
            *(["--ignore-eof"] if ignore_eof else []),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()
        self._address: Json = {}

    def start(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mmsp.testing", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": _import_path()},
        )
        try:
            self._address = self._read(self._process)
            if self._answers:
                self.set_answers(*self._answers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the process; calling it again does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        with process, contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()  # the end of its input is the end of the provider
            try:
                process.wait(LONGEST_STOP)
            except subprocess.TimeoutExpired:
                process.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def base_url(self) -> str:
        return str(self._address["base_url"])

    @property
    def proxy_url(self) -> str:
        return str(self._address["proxy_url"])

    @property
    def ca_file(self) -> str:
        return str(self._address["ca_file"])

    @functools.cached_property
    def ssl_context(self) -> ssl.SSLContext:
        """A client's context that trusts the provider."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_file)
        return context

    @property
    def connections(self) -> list[ConnectionRecord]:
        """A snapshot; the requests in it come without their bodies."""
        return [record_from_json(item) for item in self._ask("connections")["connections"]]

    @property
    def requests(self) -> list[ReceivedRequest]:
        return [request_from_json(item) for item in self._ask("requests")["requests"]]

    def set_answers(self, *answers: Answer) -> None:
        self._ask("answers", answers=[answer_to_json(answer) for answer in answers])

    def open(self, gate: str) -> None:
        self._ask("open", gate=gate)

    def forget(self) -> None:
        self._ask("reset")

    def wait(self, state: str, count: int = 1, timeout: float = 5.0) -> None:
        """Block until `count` connections are or were in a state."""
        self._ask("wait", state=state, count=count, timeout=timeout)

    def wait_closed(self, count: int = 1, timeout: float = 5.0) -> list[int]:
        """Block until `count` connections have ended; return when each that has ended did."""
        return list(self._ask("wait_closed", count=count, timeout=timeout)["closed_ns"])

    def _ask(self, do: str, **details: Any) -> Json:
        with self._turn:
            process = self._running()
            assert process.stdin is not None
            print(json.dumps({"do": do, **details}), file=process.stdin, flush=True)
            reply = self._read(process)
        if "error" in reply:
            raise KINDS.get(reply["kind"], RuntimeError)(reply["error"])
        return reply

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the ProviderProcess is not running: use it in a `with`")
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[str]) -> Json:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the provider's process has ended; its error output says why")
        reply: Json = json.loads(line)
        return reply


def _import_path() -> str:
    """The child finds the same mmsp, however this process came by it."""
    here = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
