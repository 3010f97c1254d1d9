"""Logging of a process: structured lines on standard error, without secrets, for our events and the libraries'.

``diem up`` reads the keys ``event``, ``level``, ``process``, ``timestamp`` and ``exception`` of the JSON format
(``deploy/system/process_logs.py``).
"""

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
REMOVED: Final = "[removed]"
MAX_CHARACTERS: Final = 8192
"""Longest logged text; of longer ones, the beginning and the end, where a traceback has its error."""

_SECRET_FIELDS: Final = re.compile(
    r"token|secret|password|authorization|cookie|(^|_|api)key$|sec.websocket.protocol|query", re.IGNORECASE
)
# Each of these is linear in the text: no two matches start before the same character.
_SUSPECT: Final = re.compile(r"[?@]|bearer|diem_", re.IGNORECASE)
"""A quick check: text without a match, as usual, has no secret of the kinds below."""
_BETWEEN_WORDS: Final = re.compile(r"([\s\"']+)")
_TOKEN: Final = re.compile(r"[^,;]+")
_BEARER: Final = re.compile(r"(bearer\.)[^,;]+", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(://)[^/]*@")
_API_KEY: Final = re.compile(r"(diem_[a-z0-9]{8}_)[A-Za-z0-9]{20,}")
_BEFORE_LAST_WORD: Final = re.compile(r".*[\s\"']", re.DOTALL)
_FIRST_WORD: Final = re.compile(r"\s*+[^\s\"']*+")
_FAILURES: Final[ContextVar[Callable[[str], str]]] = ContextVar("failures", default=str)
"""Filter for the texts of ``fail``."""


def configure(level: str, fmt: str, process: str = "") -> None:
    """Send the events of structlog and of the standard library to standard error.

    ``level`` is a key of :data:`LEVELS`, ``fmt`` is ``json`` (one object a line) or ``console``. Values of fields named
    like secrets are removed, and so are bearer tokens, API keys, credentials and query strings inside texts. Writing
    never raises: a process outlives the reader of its log.
    """
    structlog.contextvars.clear_contextvars()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _naming(process),
    ]
    last: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        redact,
    ]
    if fmt == "json":
        last.append(structlog.processors.JSONRenderer(_dump))
    else:
        plain = structlog.dev.plain_traceback
        last.append(structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(LEVELS[level])
    # A line per request is for debugging only: processes poll others, and sources their publishers, forever.
    logging.getLogger("httpx").setLevel(logging.DEBUG if level == "debug" else max(LEVELS[level], logging.WARNING))
    # The default prints a traceback of the logging module when standard error is closed.
    logging.raiseExceptions = False
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def fail(text: str) -> None:
    """Write the line with the reason why a command or process ends."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"diem: {_clean(_FAILURES.get()(text))}\n")
        sys.stderr.flush()


def rewrite_failures(rewrite: Callable[[str], str]) -> None:
    """Make ``fail`` pass texts through this function, in the present context."""
    _FAILURES.set(rewrite)


def flush() -> None:
    """Flush standard error, before an exit without clean-up."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove secrets from an event (docs/reliability.md S20)."""
    for name, value in event.items():
        event[name] = _redacted(name, value)
    return event


def _redacted(name: object, value: object) -> object:
    if isinstance(name, str) and _SECRET_FIELDS.search(name):
        return REMOVED
    match value:
        case str() | BaseException():
            return _clean(str(value))
        case Mapping():
            return {inner: _redacted(inner, each) for inner, each in value.items()}
        case list() | tuple():
            return [_redacted(None, each) for each in value]
        case _:
            return value


def _clean(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        text = _shortened(text)
    if _SUSPECT.search(text) is None:
        return text
    pieces = _BETWEEN_WORDS.split(text)
    after_bearer = False
    for number in range(0, len(pieces), 2):
        word = pieces[number]
        pieces[number] = _clean_word(_TOKEN.sub(REMOVED, word, count=1) if after_bearer else word)
        after_bearer = word[-6:].lower() == "bearer"
    return "".join(pieces)


def _clean_word(word: str) -> str:
    word = _BEARER.sub(rf"\1{REMOVED}", word)
    word = _CREDENTIALS.sub(rf"\1{REMOVED}@", word)
    word = _API_KEY.sub(rf"\1{REMOVED}", word)
    # The query of a URL or of a request target; ``?`` after a word of prose stays.
    target, _, query = word.partition("?")
    return f"{target}?{REMOVED}" if query and ("/" in target or "=" in query) else word


def _shortened(text: str) -> str:
    """Return the beginning and end of a text without the words cut in between: half a secret would go undetected."""
    head, tail = text[: MAX_CHARACTERS // 2], text[-MAX_CHARACTERS // 2 :]
    whole = _BEFORE_LAST_WORD.match(head)
    kept = whole.end() if whole else 0
    if "://" in head[kept:] or "diem_" in head[kept:]:
        head = head[:kept]
    return f"{head} [{len(text) - MAX_CHARACTERS} characters] {_FIRST_WORD.sub('', tail, count=1)}"


def _naming(process: str) -> Callable[[WrappedLogger, str, EventDict], EventDict]:
    def name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if process:
            event.setdefault("process", process)
        return event

    return name


def _dump(event: EventDict, **_options: Any) -> str:  # noqa: ANN401  # structlog's serialiser protocol
    return orjson.dumps(event, default=lambda value: _clean(str(value)), option=orjson.OPT_NON_STR_KEYS).decode()
