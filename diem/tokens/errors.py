"""Errors of tokens and key sets.

DiemError
├── TokenInvalid
│   ├── TokenExpired
│   └── TokenRevoked
├── BadKeySet
└── KeysUnavailable
    └── KeysMissing
"""

from dataclasses import dataclass

from diem.errors import DiemError


@dataclass(eq=False)
class TokenInvalid(DiemError):
    """An invalid token. ``reason`` never contains a part of it."""

    template = "the token is not valid: {reason}"

    reason: str


@dataclass(eq=False)
class TokenExpired(TokenInvalid):
    """An expired but otherwise valid token; a new one helps."""

    template = "the token is no longer valid: {reason}"
    retriable = True

    reason: str = "it has expired"


@dataclass(eq=False)
class TokenRevoked(TokenInvalid):
    """A token whose API key was revoked."""

    template = "the token is no longer valid: {reason}"

    reason: str = "its API key was revoked"


@dataclass(eq=False)
class BadKeySet(DiemError):
    """A document without a usable JWK Set. ``reason`` contains no key."""

    template = "not a usable JWK Set: {reason}"

    reason: str


@dataclass(eq=False)
class KeysUnavailable(DiemError):
    """A JWK Set cannot be read now."""

    template = "{reason}"
    retriable = True

    reason: str


@dataclass(eq=False)
class KeysMissing(KeysUnavailable):
    """A file with a JWK Set does not exist, perhaps not yet."""

    template = "{reason}"
    retriable = True

    reason: str
