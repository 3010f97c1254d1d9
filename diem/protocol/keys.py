"""Endpoints of a served topic: each named after the key of its records (docs/adr/0037); pure."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import orjson

from diem.errors import ConfigurationError
from diem.protocol import endpoints
from diem.protocol.partitioners import Partitioner

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z0-9_]+)\}")


@dataclass(eq=False)
class BadKeyTemplate(ConfigurationError):
    """The template cannot name endpoints."""

    template = "the key template {text}: {reason}"

    text: str
    reason: str


class Name(NamedTuple):
    """The endpoint of a key, and what members its values must have: another one would be of another endpoint."""

    endpoint: bytes
    required: tuple[tuple[str, str], ...] = ()

    def contradicts(self, value: object) -> bool:
        """Return whether a value has another member than the key."""
        return isinstance(value, dict) and any(_text(value.get(name, text)) != text for name, text in self.required)


class KeyTemplate:
    """Names the endpoint of a key: ``/orders/{key}``, or ``/orders/{id}`` with a member of a JSON key.

    A key that is no object has one value: ``{id}`` is then that value, too, and must be the member ``id`` of the value,
    so that the endpoint is always a function of the key.

    Args:
        text: the template.
        form: the bytes of a key by the same placeholders, such as ``{"id":{id}}``, from which its partition follows;
            empty: those of the only placeholder.
    """

    def __init__(self, text: str, form: str = "") -> None:
        self.text = text
        self.form = form
        self._parts = _PLACEHOLDER.split(text)
        self.names = self._parts[1::2]
        if not self.names:
            raise BadKeyTemplate(text, "it needs a placeholder, such as /orders/{key}")
        if not endpoints.is_valid(_PLACEHOLDER.sub("x", text)):
            raise BadKeyTemplate(text, "it is no name of an endpoint: begin with a slash, as in /orders/{key}")
        if unknown := set(_PLACEHOLDER.findall(form)) ^ set(self.names) if form else ():
            raise BadKeyTemplate(
                text, f"the form of its keys has not the same placeholders: {', '.join(sorted(unknown))}"
            )
        # Of several placeholders, none spans segments: their values must be found again.
        value = "(.+)" if len(self.names) == 1 else "([^/]+)"
        self._endpoint = re.compile(value.join(map(re.escape, self._parts[::2])))

    @classmethod
    def of(cls, topic: str, text: str | None, form: str | None = None) -> Self:
        """Return the template of a topic: by default its name and the key; one without a slash is below its name."""
        own = text is not None and text.startswith("/")
        return cls(text if text is not None and own else f"/{topic}/{text or '{key}'}", form or "")

    def name(self, key: bytes) -> "Name | None":
        """Return the endpoint of a key; None if that is no valid name."""
        parts, plain, members = list(self._parts), key.decode("ascii", "replace"), _object(key)
        for at in range(1, len(parts), 2):
            text = plain if members is None or parts[at] == "key" else _text(members.get(parts[at]))
            if text is None:
                return None
            parts[at] = text
        name = "".join(parts)
        if not endpoints.is_prefix(name):
            return None
        required = tuple((member, plain) for member in self.names if member != "key") if members is None else ()
        return Name(name.encode(), required)

    def key(self, endpoint: bytes) -> bytes:
        """Return the key of an endpoint; the endpoint itself if it does not fit, or several values have no form."""
        found = self._endpoint.fullmatch(endpoint.decode())
        if found is None or (len(self.names) > 1 and not self.form):
            return endpoint
        values = dict(zip(self.names, found.groups(), strict=True))
        return _PLACEHOLDER.sub(lambda name: values[name[1]], self.form or f"{{{self.names[0]}}}").encode()


def _object(data: bytes) -> dict[str, Any] | None:
    """Return the object in JSON; None if it is none."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None


@lru_cache(16)
def served_keys(text: str) -> tuple[Partitioner, KeyTemplate]:
    """Return the partitioner and the template of :func:`encode_keys`."""
    partitioner, _, template = text.partition(":")
    return Partitioner(partitioner), KeyTemplate(*template.split("\n"))


def encode_keys(partitioner: Partitioner, template: KeyTemplate) -> str:
    """Return both as one text, for the head of a partition map."""
    return f"{partitioner}:{template.text}" + (f"\n{template.form}" if template.form else "")
