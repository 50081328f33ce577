"""`fetch_models`: the list of an endpoint's models, page after page, within limits, by one call.

An endpoint that does not come to an end is stopped by its pages, by their size, and when it names a page
again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .codecs.base import Codec
from .codecs.http_error import complaint, stream_error
from .connector import Connector
from .errors import StreamProtocolError
from .http_call import HttpCall
from .masking import beginning
from .request import Target

__all__ = ["fetch_models"]


async def fetch_models(
    call: HttpCall, codec: Codec, target: Target, connector: Connector
) -> list[str]:
    """The ids, in the endpoint's order."""
    limits, found = connector.limits, list[str]()
    page, seen, size = "", set[str](), 0
    while page not in seen:
        if len(seen) == limits.list_pages:
            raise _endless(connector, f"it has more than {limits.list_pages:,} pages", "list_pages")
        seen.add(page)
        body = (await call.ask(codec.list_models(target, page))).body
        size += len(body)
        if size > limits.answer_bytes:
            over = f"its pages are longer than {limits.answer_bytes:,} bytes"
            raise _endless(connector, over, "answer_bytes")
        models, page = _models_in(body, codec, connector)
        found += models
        if not page:
            return found
    raise StreamProtocolError(
        "The list of models does not end: the endpoint names the same page again.",
        client=connector.client,
    )


def _models_in(body: bytes, codec: Codec, connector: Connector) -> tuple[list[str], str]:
    client, secrets = connector.client, connector.secrets
    answer: Any = None
    try:
        answer = msgspec.json.decode(body)
        return codec.models(answer)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        if (reported := complaint(answer)) is not None:
            raise stream_error(reported, client=client, secrets=secrets) from None
        raise StreamProtocolError(
            f"The answer is no list of models: {beginning(body, secrets)!r}", client=client
        ) from None


def _endless(connector: Connector, why: str, limit: str) -> StreamProtocolError:
    return StreamProtocolError(
        f"The list of models does not end: {why} (Limits.{limit}).", client=connector.client
    )
