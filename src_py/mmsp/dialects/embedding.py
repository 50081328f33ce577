"""`EmbeddingDialect`: how much a server of OpenAI's embeddings takes in one request."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DIALECT", "EmbeddingDialect"]


@dataclass(frozen=True, slots=True)
class EmbeddingDialect:
    """- `inputs`: OpenAI documents 2,048.
    - `bytes`: of all inputs, as UTF-8. OpenAI documents 300,000 tokens, which we cannot count; texts have
      rarely less than two bytes a token.
    """

    inputs: int = 2048
    bytes: int = 600_000


DIALECT = EmbeddingDialect()
