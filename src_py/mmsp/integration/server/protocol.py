"""One request at a time on a connection.

uvicorn queues a request that comes before the answer to the one before it is over, and from then on neither
reads from the connection nor tells the running answer that it has ended: a caller who hangs up would not be
heard. Nobody's HTTP client sends requests ahead any more; whoever does is hung up on, which HTTP allows a
server at any time.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["OneAtATime"]


class OneAtATime(HttpToolsProtocol):
    def on_headers_complete(self) -> None:
        running: Any = self.cycle  # None at first, whatever its type says
        if running is not None and not running.response_complete:
            self.transport.abort()
        else:
            super().on_headers_complete()
