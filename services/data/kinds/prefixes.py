"""What ``diem.toml`` says about the endpoints below a prefix: their kind, schema, time to live and URL."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import orjson

from diem.protocol.endpoints import ancestors
from services.data.errors import InvalidDataset, WrongKind
from services.data.kinds import Representation, kind_of

MAX_FAULT: Final = 300
"""Longest text of a schema's fault."""
Fault = Callable[[Any], str | None]
"""Returns the fault of a JSON value; None if it is valid."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Rules of the endpoints below a prefix; the defaults rule nothing.

    Attributes:
        name: of the prefix, for errors. kind: name of the only kind; empty: any. url: template of a notice's URL, with
        ``{endpoint}`` and ``{rest}``, the part after the prefix and its slash. ttl_ms: time to live where a write gives
        none; 0: no end. fault: of the JSON Schema; None without one.
    """

    name: str = ""
    kind: str = ""
    url: str = ""
    ttl_ms: int = 0
    fault: Fault | None = None

    def url_of(self, endpoint: str) -> str:
        """Return the URL of the data of a notice; empty if none is configured."""
        rest = endpoint[len(self.name) :].removeprefix("/")
        return self.url.replace("{endpoint}", endpoint).replace("{rest}", rest)

    def check(self, new: Representation) -> None:
        """Check new content: its kind, and a document's schema; raises WrongKind, InvalidDataset."""
        kind = kind_of(new.media_type).name
        if self.kind and self.kind != kind:
            raise WrongKind(new.endpoint, self.kind, kind, f"that, as [[prefix]] {self.name} declares")
        self.check_content(new.endpoint, new.content)

    def check_content(self, endpoint: str, content: bytes) -> None:
        """Check a document against the schema.

        Raises:
            InvalidDataset: the error names the path of the first fault.
        """
        if self.fault is not None and (fault := self.fault(orjson.loads(content))) is not None:
            raise InvalidDataset(f"{fault} (schema of {self.name})", endpoint)


_FREE: Final = Prefix()


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Rules by prefix in whole segments; the longest one applies."""

    by_name: Mapping[str, Prefix] = field(default_factory=dict)

    @classmethod
    def of_all(cls, prefixes: Iterable[Prefix]) -> "Prefixes":
        """Return the rules of several prefixes."""
        return cls({each.name: each for each in prefixes})

    def of(self, endpoint: str) -> Prefix:
        """Return the rules of an endpoint."""
        if self.by_name:
            for name in (endpoint, *ancestors(endpoint)):
                if (found := self.by_name.get(name)) is not None:
                    return found
        return _FREE


def schema_fault(schema: dict[str, Any] | bool) -> Fault:
    """Return the check of a JSON Schema, with references within the schema only.

    Raises:
        ValueError: it is no JSON Schema, or refers to another document.
    """
    import jsonschema_rs  # noqa: PLC0415  # 4 MB that few services need

    try:
        validator = jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(str(error).partition("\n")[0][:MAX_FAULT]) from None

    def fault(value: object) -> str | None:
        found = next(validator.iter_errors(value), None)
        if found is None:
            return None
        path, text = ".".join(map(str, found.instance_path)), found.message
        if len(text) > MAX_FAULT:
            # The reason follows the value, which may be long.
            text = f"{text[: MAX_FAULT // 3]} ... {text[-MAX_FAULT // 2 :]}"
        return f"$.{path[-MAX_FAULT:]}: {text}" if path else f"$: {text}"

    return fault


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri[:100]} is another document: put it into this one, below $defs")
