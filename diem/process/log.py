"""Logging of a process: structured lines on standard error, without secrets, for our events and the libraries'."""

import contextlib
import logging
import re
import sys
from collections.abc import Callable
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

_SECRET_FIELDS: Final = re.compile(
    r"token|secret|password|authorization|cookie|(^|_)key$|sec.websocket.protocol|query", re.IGNORECASE
)
_BEARER: Final = re.compile(r"\b(bearer[ .])[^\s\"',;]+", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(://)[^/\s@]+@")
# The query of a URL or of a request target; `?` after a word of prose stays.
_QUERY: Final = re.compile(r"((?:[a-z]+:/)?/[^\s?\"'#]*)\?[^\s\"'#]+", re.IGNORECASE)


def configure(level: str, fmt: str, process: str = "") -> None:
    """Send the events of structlog and of the standard library to standard error.

    `level` is a key of `LEVELS`, `fmt` is `json` (one object a line) or `console`. Values of fields that are named
    like secrets, bearer tokens, credentials and query strings inside texts are removed. Writing never raises: a
    process outlives the reader of its log.
    """
    structlog.contextvars.clear_contextvars()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _naming(process),
    ]
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if fmt == "json":
        last += [structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer(_dump)]
    else:
        plain = structlog.dev.plain_traceback
        last += [redact, structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(LEVELS[level])
    # The default prints a traceback of the logging module when standard error is gone.
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
    """Write the one line with which a command or process says why it ends."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"diem: {_clean(text)}\n")
        sys.stderr.flush()


def flush() -> None:
    """Write out what is buffered, before an end without clean-up."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove secrets from an event (docs/reliability.md S20)."""
    for name, value in event.items():
        if _SECRET_FIELDS.search(name):
            event[name] = REMOVED
        elif isinstance(value, str):
            event[name] = _clean(value)
    return event


def _clean(text: str) -> str:
    text = _BEARER.sub(rf"\1{REMOVED}", text)
    text = _CREDENTIALS.sub(rf"\1{REMOVED}@", text)
    return _QUERY.sub(rf"\1?{REMOVED}", text)


def _naming(process: str) -> Callable[[WrappedLogger, str, EventDict], EventDict]:
    def name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if process:
            event.setdefault("process", process)
        return event

    return name


def _dump(event: EventDict, **_options: Any) -> str:  # noqa: ANN401  # structlog's serialiser protocol
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
