"""Keys and values with schemas of a registry, in Confluent's wire format: a zero byte, the id of the schema, the value.

The registry has the interface of Confluent's, as Apicurio (below ``/apis/ccompat/v7``), Karapace and Redpanda have it,
too. It is asked once for each schema.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import orjson

from diem.process.http_transport import HttpTransport
from diem.process.tls import client_context
from services.data.errors import DataError, InvalidDataset
from services.data.sources.extras import needing
from services.data.sources.kafka.formats import HEAD_BYTES, PLAIN, ValueFormat
from services.data.sources.kafka.table import REGISTERED, KafkaTable
from services.data.sources.records.attempts import InputFailed

TIMEOUT_S: Final = 10.0
MAX_SCHEMAS: Final = 1000
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 100
"""Schemas that one needs, with those that they need."""
Decode = Callable[[bytes], Any]
"""Decodes what follows the id of a schema."""


class RegisteredSchema(NamedTuple):
    """A schema: its text, and those that it refers to, by name, each after those that it needs itself.

    Of Protocol Buffers, the text is a descriptor in base64.
    """

    kind: str
    text: str
    references: dict[str, str]


class UnknownSchema(DataError):
    """A schema that the registry does not have."""

    code = "unknown_schema"


class RegistryClient:
    """Reads schemas from a registry.

    Args:
        http: the client.
        url: of the registry.
        serialized: whether schemas are wanted as descriptors.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, *, serialized: bool) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._query = "?format=serialized" if serialized else ""

    async def schema(self, number: int) -> RegisteredSchema:
        """Return the schema with an id.

        Raises:
            UnknownSchema: there is none.
            InputFailed: the registry cannot be reached, or refuses.
        """
        found = await self._get(f"/schemas/ids/{number}{self._query}", f"the schema {number}")
        references: dict[str, str] = {}
        await self._refer(found, references)
        return RegisteredSchema(found.get("schemaType", "AVRO"), found["schema"], references)

    async def _refer(self, schema: dict[str, Any], references: dict[str, str]) -> None:
        for each in schema.get("references") or ():
            name, subject, version = each["name"], each["subject"], each["version"]
            if name in references:
                continue
            if len(references) >= MAX_REFERENCES:
                raise InvalidDataset(f"its schema refers to more than {MAX_REFERENCES} others")
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}{self._query}"
            references[name] = ""  # begun: a circle ends here
            found = await self._get(path, f"version {version} of {subject}")
            await self._refer(found, references)
            del references[name]
            references[name] = found["schema"]

    async def _get(self, path: str, what: str) -> dict[str, Any]:
        body = bytearray()
        try:
            async with self._http.stream("GET", self._url + path) as answer:
                if answer.status_code == 404:
                    raise UnknownSchema(f"the registry does not have {what}")
                if answer.status_code in {401, 403}:
                    raise InputFailed(
                        f"the registry {self._url} refuses (keys: registry_username, registry_password_file)"
                    )
                if answer.status_code != 200:
                    raise InputFailed(f"the registry {self._url} answers with status {answer.status_code}")
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise InvalidDataset(f"{what} has more than {MAX_ANSWER_BYTES} bytes")
            found: dict[str, Any] = orjson.loads(body)
            if not isinstance(found["schema"], str):
                raise InputFailed(f"the registry {self._url} gives no schema")
        except (httpx.HTTPError, OSError) as error:
            raise InputFailed(f"the registry {self._url}: {str(error) or type(error).__name__}") from error
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise InputFailed(f"{self._url} is no schema registry: it gives no schema") from error
        return found


class RegisteredFormat:
    """A format whose schemas are in a registry.

    Args:
        kind: avro or protobuf.
        registry: of the schemas.
    """

    def __init__(self, kind: str, registry: RegistryClient) -> None:
        self._kind = kind
        self._registry = registry
        self._decoders: OrderedDict[int, Decode] = OrderedDict()
        """By the id of the schema; the last one was fetched last."""
        self._faults: dict[int, DataError] = {}
        """Of schemas that cannot be used, in the records prepared last."""

    async def prepare(self, texts: Iterable[bytes | None]) -> None:
        """Fetch the schemas of these."""
        self._faults = {}
        for number in {_schema_of(text) for text in texts if text is not None}:
            if number is None or number in self._decoders:
                continue
            try:
                self._decoders[number] = self._decoder(await self._registry.schema(number))
            except InputFailed:
                raise
            except DataError as error:
                self._faults[number] = error
            while len(self._decoders) > MAX_SCHEMAS:
                self._decoders.popitem(last=False)

    def _decoder(self, schema: RegisteredSchema) -> Decode:
        if schema.kind.lower() != self._kind:
            raise InvalidDataset(f"its schema is {schema.kind}, not {self._kind} (keys: format, key_format)")
        made: Decode = import_module(f"services.data.sources.kafka.{self._kind}").decoder(
            schema.text, schema.references
        )
        return made

    def decode(self, text: bytes) -> Any:  # noqa: ANN401  # any JSON value
        """Return the JSON value; raises DataError."""
        number = _schema_of(text)
        if number is None:
            raise InvalidDataset("it has no id of a schema before it (Confluent's wire format)")
        if (decode := self._decoders.get(number)) is not None:
            return decode(text[HEAD_BYTES:])
        raise self._faults.get(number) or UnknownSchema(f"the schema {number} is not there")

    def raw(self, text: bytes) -> None:
        """Return None: it is no JSON."""


def _schema_of(text: bytes) -> int | None:
    return int.from_bytes(text[1:HEAD_BYTES]) if len(text) >= HEAD_BYTES and text[0] == 0 else None


@asynccontextmanager
async def open_registered(table: KafkaTable, url: str) -> AsyncIterator[tuple[ValueFormat, ValueFormat]]:
    """Open the formats of values and of keys with the registry at a URL.

    Raises:
        ConfigurationError: a file, or a package, cannot be used.
    """
    wanted = (table.format, table.format_of_keys)
    with needing("registry"):
        for kind in REGISTERED & {*wanted}:
            import_module(f"services.data.sources.kafka.{kind}")
    file = table.registry_ca_file
    tls = client_context(None if file is None else Path(file)) if url.startswith("https") else False
    options: dict[str, Any] = {"timeout": TIMEOUT_S, "follow_redirects": False, "trust_env": False}
    accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    login = table.registry_login()
    async with httpx.AsyncClient(transport=HttpTransport(verify=tls), auth=login, headers=accept, **options) as http:

        def of(kind: str) -> ValueFormat:
            if kind in PLAIN:
                return PLAIN[kind]
            return RegisteredFormat(kind, RegistryClient(http, url, serialized=kind == "protobuf"))

        yield of(table.format), of(table.format_of_keys)
