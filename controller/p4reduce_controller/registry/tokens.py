"""A job's tokens: the owner's allows removing the job, either one allows joining it.

The controller stores a digest of each; the tokens themselves are only in the answer to the job's creation.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

_TOKEN_BYTES = 24


@dataclass(frozen=True)
class Tokens:
    """The two tokens of a private job."""

    owner: str
    member: str


def draw() -> Tokens:
    """Make the tokens of a new job."""
    return Tokens(secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_urlsafe(_TOKEN_BYTES))


def lock(token: str) -> str:
    """Return the digest of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def opens(token: str, *locks: str) -> bool:
    """Whether `token` is that of one of the locks; where one of them is "", there is nothing to open."""
    digest = lock(token)
    return any(not each or hmac.compare_digest(digest, each) for each in locks)
