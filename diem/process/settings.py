"""Settings shared by all processes: read once from the environment, validated, frozen; and their reference."""

import json
import os
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from diem.errors import ConfigurationError, did_you_mean
from diem.process.auth import BadKeyFile, read_secret
from diem.process.service_links import is_service_link

SHARED_PREFIX = "DIEM_"
PROCESSES = ("data", "broadcast", "bridge", "websocket", "metadata", "proxy", "composite")
"""All processes, in the order in which they start."""
GROUPS = ("kafka", "traffic")
"""Groups of settings shared by several processes, each with a prefix of its own (``DIEM_KAFKA_``)."""
_TOP_LEVEL: Final = frozenset({"bridge", "metadata", "proxy"})

_S = TypeVar("_S", bound="ProcessSettings")


class BadSettings(ConfigurationError):
    """Environment variables are unknown, or have invalid values; ``lines`` has one line for each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__(self.lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(eq=False)
class UnknownProcess(ConfigurationError):
    """There is no process of this name."""

    name: str

    def __str__(self) -> str:
        """Return one line with the known names."""
        return f"no process is called {self.name!r}: there are {', '.join(PROCESSES)}"


class ProcessSettings(BaseModel):
    """Base of every process's settings; read them with :meth:`load`.

    A field is read from ``DIEM_<FIELD>``. Subclasses set ``process = "<process>"``: where processes share an
    environment, ``DIEM_<PROCESS>_<FIELD>`` is for those of one kind and has priority, unless the field is one of these.
    Mappings are JSON, lists JSON or plain texts with commas between them. A secret may be in a file, named by the
    variable with the suffix ``_FILE``.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # A process uses one model, so the validators of its bases are never built (docs/performance.md, Start-up).
        defer_build=True,
        # A shared field has its variable as alias; code that constructs settings uses the field's name.
        validate_by_name=True,
        validate_by_alias=True,
        validate_default=True,
        # A traceback must not quote an invalid key.
        hide_input_in_errors=True,
    )
    process: ClassVar[str] = "process"

    state_dir: Path = Field(
        default=Path(".diem"),
        validation_alias="DIEM_STATE_DIR",
        description="Directory of everything that outlives a process: keys, the store, logs.",
    )
    internal_key_file: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "internal.key",
        validation_alias="DIEM_INTERNAL_KEY_FILE",
        description="File of the internal key (mode 0600, or 0440 and a group of the process); keys of roles are in "
        "files beside it.",
        json_schema_extra={"shown_default": "<state dir>/internal.key"},
    )
    internal_sockets: Path | None = Field(
        default=None,
        validation_alias="DIEM_INTERNAL_SOCKETS",
        description="Directory (mode 0700) of Unix sockets for internal links within this machine; they cost less "
        "than TCP, which is used where a process has none.",
    )
    internal_addresses: list[str] = Field(
        default=[],
        validation_alias="DIEM_INTERNAL_ADDRESSES",
        description="Further addresses (IP:port) at which others reach the internal listener, where addresses are "
        "translated on the way.",
    )
    internal_ca_file: Path | None = Field(
        default=None,
        validation_alias="DIEM_INTERNAL_CA_FILE",
        description="Certificates (PEM) that sign those of wss:// links; default: the system's.",
    )
    internal_tls_certificate: Path | None = Field(
        default=None,
        validation_alias="DIEM_INTERNAL_TLS_CERTIFICATE",
        description="Certificate chain (PEM) of the internal listener, on other than loopback addresses.",
    )
    internal_tls_key: Path | None = Field(
        default=None,
        validation_alias="DIEM_INTERNAL_TLS_KEY",
        description="Private key of that certificate (PEM, without a password); default: in its file.",
    )
    health_host: str = Field(
        default="127.0.0.1",
        validation_alias="DIEM_HEALTH_HOST",
        description="Address of the health listener, which serves /livez and /readyz without a key, and nothing else.",
    )
    health_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        validation_alias="DIEM_HEALTH_PORT",
        description="Port of the health listener; 0 = a free one. Default: there is none. The internal listener serves "
        "the same, with all else.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", validation_alias="DIEM_LOG_LEVEL", description="Least severe level that is logged."
    )
    log_format: Literal["json", "console"] = Field(
        default="json",
        validation_alias="DIEM_LOG_FORMAT",
        description="One JSON object a line, or plain lines for people.",
    )
    traces: str = Field(
        default="off",
        min_length=1,
        validation_alias="DIEM_TRACES",
        description="Where spans of traced updates go: off; otlp, to a collector (by OTEL_EXPORTER_OTLP_*); or a "
        "directory, for a file of OTLP/JSON lines of each process. Needs the extra otel.",
    )
    drain_seconds: float = Field(
        default=30.0,
        ge=0,
        le=600,
        validation_alias="DIEM_DRAIN_SECONDS",
        description="Seconds that a stopping process gives its clients to leave.",
    )
    time_factor: float = Field(
        default=1.0,
        ge=0.1,
        le=100,
        validation_alias="DIEM_TIME_FACTOR",
        description="Factor for the time-outs of start-up and drain, for slow machines.",
    )
    supervised: bool = Field(
        default=False,
        validation_alias="DIEM_SUPERVISED",
        description="Set by the supervisor: the end of standard input means that it is gone.",
    )

    @property
    def process_name(self) -> str:
        """Name of this process in logs, metrics and ``diem status``; numbered processes override it."""
        return self.process

    @classmethod
    def load(cls) -> Self:
        """Read the settings from the environment.

        Raises:
            BadSettings: a ``DIEM_`` variable is unknown, or a value is invalid.
        """
        return load(cls)


def load(model: type[_S]) -> _S:
    """Read ``model`` from the environment; unknown ``DIEM_`` variables are errors.

    Variables of other processes are not checked, and service links of Kubernetes are ignored.

    Raises:
        BadSettings: with one line per fault.
    """
    lines = _unknown(model, os.environ)
    values: dict[str, Any] = {}
    given = from_environment(model)
    given |= _secrets(model, given, lines)
    for name, text in given.items():
        try:
            annotation = model.model_fields[name].annotation
            values[name] = parse_collection(text, annotation) if is_collection(annotation) else text
        except ValueError:
            lines.append(f"{_used(model, name)}: input should be JSON{_given(model, name)}")
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        lines += _lines(model, error)
    if lines:
        raise BadSettings(lines)
    return settings


def from_environment(model: type[ProcessSettings], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the texts of the set variables by field; empty ones and service links count as absent."""
    given = _variables(environ)
    used = ((name, _first(variables(model, name), given)) for name in model.model_fields)
    return {name: given[where] for name, where in used if where is not None}


def _first(names: Iterable[str], given: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in given), None)


def _used(model: type[ProcessSettings], name: str) -> str:
    """Return the variable that sets the field ``name``, or would set it."""
    names = (*variables(model, name), *_secret_file_variables(model, name))
    return _first(names, _variables()) or variable(model, name)


def _variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the set variables, in upper case."""
    given = {name.upper(): value for name, value in environ.items() if value}
    return {name: value for name, value in given.items() if not is_service_link(name, value)}


def _secret_file_variables(model: type[ProcessSettings], name: str) -> tuple[str, ...]:
    """Return the variables of the file that may hold the field ``name``; none if it is not a secret."""
    is_secret = _holds_secret(model.model_fields[name].annotation)
    return tuple(f"{each}_FILE" for each in variables(model, name)) if is_secret else ()


def secret_files(model: type[ProcessSettings], environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the secret files named in the environment, by field."""
    given = _variables(environ)
    named = ((name, _first(_secret_file_variables(model, name), given)) for name in model.model_fields)
    return {name: Path(given[where]) for name, where in named if where is not None}


def _secrets(model: type[ProcessSettings], texts: Mapping[str, str], lines: list[str]) -> dict[str, str]:
    """Return the secrets in files, by field; add a line per fault to ``lines``."""
    found: dict[str, str] = {}
    for name, path in secret_files(model).items():
        where = _first(_secret_file_variables(model, name), _variables())
        if name in texts:
            lines.append(f"{where}: {_used(model, name)} is set, too: only one of them may be")
            continue
        try:
            found[name] = read_secret(path)
        except BadKeyFile as error:
            lines.append(f"{where}: {path}: {error.reason}")
    return found


def variable(model: type[ProcessSettings], name: str) -> str:
    """Return the environment variable of the field ``name``."""
    alias = model.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else f"{SHARED_PREFIX}{name.upper()}"


def variables(model: type[ProcessSettings], name: str) -> tuple[str, ...]:
    """Return all environment variables of the field ``name``; the first that is set counts."""
    if isinstance(model.model_fields[name].validation_alias, str):
        return (variable(model, name),)
    return f"{_prefix(model)}{name.upper()}", variable(model, name)


def known_variables(model: type[ProcessSettings]) -> set[str]:
    """Return the environment variables that ``model`` is read from, those of files of secrets among them."""
    fields = model.model_fields
    return {each for name in fields for each in (*variables(model, name), *_secret_file_variables(model, name))}


def settings_of(process: str) -> type[ProcessSettings]:
    """Return the settings model of a process, without importing the process itself. Raises :class:`UnknownProcess`."""
    if process not in PROCESSES:
        raise UnknownProcess(process)
    return cast("type[ProcessSettings]", import_module(f"{package_of(process)}.settings").Settings)


def package_of(process: str) -> str:
    """Return the package of one of ``PROCESSES``."""
    # The parts of the scaling axes have folders of their own; the services that they scale share one.
    return process if process in _TOP_LEVEL else f"services.{process}"


def by_process(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with ``DIEM_<PROCESS>_<FIELD>`` for each process that would read ``DIEM_<FIELD>``."""
    given = {name.upper(): value for name, value in environ.items() if value}
    return given | {own: given[short] for own, short in short_variables(given).items()}


def short_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the set ``DIEM_<FIELD>`` by each ``DIEM_<PROCESS>_<FIELD>`` that it stands for.

    The settings of all processes are imported only if there may be one.
    """
    given = {name.upper() for name, value in environ.items() if value and name.upper().startswith(SHARED_PREFIX)}
    given -= known_variables(ProcessSettings)
    longer = tuple(f"{SHARED_PREFIX}{name.upper()}_" for name in (*PROCESSES, *GROUPS))
    if all(name.startswith(longer) for name in given):
        return {}
    models = map(settings_of, PROCESSES)
    names = (variables(model, name) for model in models for name in model.model_fields)
    return {own: short[0] for own, *short in names if short and own not in given and short[0] in given}


def _prefix(model: type[ProcessSettings]) -> str:
    return f"{SHARED_PREFIX}{model.process.upper()}_"


def _unknown(model: type[ProcessSettings], environ: Mapping[str, str]) -> list[str]:
    known = known_variables(model)
    prefixes = (f"{SHARED_PREFIX}{name.upper()}_" for name in (*PROCESSES, *GROUPS))
    # A group belongs to the model if any setting of it does.
    foreign = tuple(p for p in prefixes if p != _prefix(model) and not any(name.startswith(p) for name in known))
    lines = []
    for name in sorted(environ):
        upper = name.upper()
        if not upper.startswith(SHARED_PREFIX) or upper in known or upper.startswith(foreign):
            continue
        if is_service_link(upper, environ[name]) or any(upper in known_variables(each) for each in _others(model)):
            continue
        lines.append(f"{name}: no such setting{did_you_mean(upper, known)}")
    return lines


def _others(model: type[ProcessSettings]) -> list[type[ProcessSettings]]:
    """Return the models of other processes, which are imported only where one of them may be meant."""
    return [settings_of(process) for process in PROCESSES if process != model.process]


def _lines(model: type[ProcessSettings], error: ValidationError) -> list[str]:
    names = {name: _used(model, name) for name in model.model_fields}
    lines = []
    # Values are quoted from the environment, as the model hides them in its errors.
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        if fault["type"] == "default_factory_not_called":
            continue  # the consequence of another fault that has its own line
        head, *path = fault["loc"] or ("",)
        name = next((name for name in names if head in {name, variable(model, name)}), str(head))
        where = names.get(name, name) + "".join(f"[{part!r}]" for part in path)
        text = fault["msg"].removeprefix("Value error, ")
        # Faults of several settings already name them in their text.
        lines.append(f"{where}: {text[:1].lower()}{text[1:]}{_given(model, name)}" if where else text)
    return lines


def _given(model: type[ProcessSettings], name: str) -> str:
    if name not in model.model_fields or _holds_secret(model.model_fields[name].annotation):
        return ""
    value = _variables().get(_used(model, name))
    return "" if value is None else f" (is {value[:80]!r})"


def members(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401  # annotations have no common type
    """Return the alternatives of a union, or the annotation alone."""
    return get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else (annotation,)


def is_collection(annotation: Any) -> bool:  # noqa: ANN401
    """Return whether a field's variable is JSON."""
    collections = {list, tuple, set, frozenset, dict}
    return any((get_origin(part) or part) in collections for part in members(annotation))


def is_plain_list(annotation: Any) -> bool:  # noqa: ANN401
    """Return whether a field's variable may be comma-separated text: a list, but not of mappings."""
    return any(
        (get_origin(part) or part) in {list, tuple, set, frozenset}
        and not any((get_origin(item) or item) is dict for item in get_args(part))
        for part in members(annotation)
    )


def parse_collection(text: str, annotation: Any) -> Any:  # noqa: ANN401
    """Return the value of a collection's variable, ``["a","b"]`` or, of plain lists, ``a,b``. Raises ``ValueError``."""
    is_number = int in members(annotation) and text.strip().isdecimal()
    if is_plain_list(annotation) and not is_number and not text.lstrip().startswith(("[", '"', "null")):
        return [part for each in text.split(",") if (part := each.strip())]
    return json.loads(text)


def _holds_secret(annotation: Any) -> bool:  # noqa: ANN401
    return SecretStr in members(annotation)


def check_link_url(text: str) -> str:
    """Return the URL of an internal link.

    Raises:
        ValueError: it is not ``ws://host:port/path``, or the same with ``wss`` for TLS.
    """
    try:
        parts = urlsplit(text)
        complete = bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        complete = False
    else:
        complete = complete and parts.scheme in {"ws", "wss"} and "@" not in parts.netloc and not parts.fragment
    if not complete or not text.isascii() or any(c.isspace() for c in text):
        raise ValueError(f"a link goes to ws://host:port/path or wss://host:port/path, not {text!r}")
    return text


def check_internal_url(text: str) -> str:
    """Return the URL of a request to an internal listener. Raises ``ValueError``."""
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"an internal request goes to http://host:port/path or https://host:port/path, not {text!r}")
    return "http" + check_link_url("ws" + text.removeprefix("http")).removeprefix("ws")


InternalUrl = Annotated[str, AfterValidator(check_internal_url)]
"""Type of a setting with the URL of a request to an internal listener."""
LinkUrl = Annotated[str, AfterValidator(check_link_url)]
"""Type of a setting with the URL of an internal link."""


class Setting(NamedTuple):
    """One row of the settings reference."""

    variable: str
    type: str
    default: str
    description: str


def reference(model: type[ProcessSettings], *, shared: bool = True) -> list[Setting]:
    """List the settings of ``model`` in the order of declaration, with or without the shared ones."""
    rows = []
    for name, field in model.model_fields.items():
        if shared or name not in ProcessSettings.model_fields:
            rows.append(Setting(variable(model, name), _type_name(field), _default(field), field.description or ""))
            if _secret_file_variables(model, name):
                where = f"{variable(model, name)}_FILE"
                what = f"File of {variable(model, name)}, in its place (mode 0600, or 0440 and a group of the process)."
                rows.append(Setting(where, "path", "unset", what))
    return rows


def _type_name(field: FieldInfo) -> str:
    names: list[str] = []
    for part in members(field.annotation):
        if get_origin(part) is Literal:
            names.extend(str(choice) for choice in get_args(part))
        elif part is type(None):
            names.append("unset")
        elif is_plain_list(part):
            names.append("list a,b")
        elif is_collection(part):
            names.append("JSON")
        else:
            names.append(_PLAIN_NAMES.get(part, part.__name__))
    return " | ".join(names)


_PLAIN_NAMES: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true | false",
    Path: "path",
    SecretStr: "secret",
}


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "shown_default" in extra:
        return str(extra["shown_default"])
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=False)
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (tuple, list, set, frozenset, dict)):
        return json.dumps(default if isinstance(default, (dict, list)) else sorted(map(str, default)), default=str)
    return "set" if isinstance(default, SecretStr) else str(default)
