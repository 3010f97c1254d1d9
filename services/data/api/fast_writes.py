"""The fast path of writes: the handlers of the routes, for plain requests of privileged writers.

What it skips is the HTTP library, the routing, and the middleware around it, which take most of the time of a small
write. Rights, limits, counts and header fields are the guard's, and errors are mapped as by the routes.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from diem.errors import DiemError
from diem.links.fast_path import FastAnswer, PlainWrite, lines
from diem.links.rest import WHOLE_BODY, on_defect, on_http_error
from services.data.access.write_access import WriteRefused
from services.data.api import problems
from services.data.api.data import DataApi
from services.data.api.guard import Guard
from services.data.api.requests import PREFIX

_ALL: Final = PREFIX.encode()
_ONE: Final = f"{PREFIX}/".encode()
_logger = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class FastWrites:
    """A :class:`~diem.links.fast_path.FastWritePath`.

    Args:
        data: handlers of the routes.
        guard: of the listener.
    """

    def __init__(self, data: DataApi, guard: Guard) -> None:
        self._guard = guard
        self._handlers: dict[str, Handler] = {
            "PUT": data.put, "PATCH": data.patch, "POST": data.post, "DELETE": data.delete
        }  # fmt: skip
        self._put_bulk: Handler = data.put_bulk

    def __call__(self, write: PlainWrite, address: str) -> Coroutine[Any, Any, FastAnswer] | None:
        """Answer a write, or leave it to the routes."""
        head = write.head
        path, _, query = head.target.partition(b"?")
        if b"%" in path or not self._guard.is_own_host(head.fields[b"host"].decode("ascii")):
            return None
        if path.startswith(_ONE):
            handler = self._handlers[head.method]
        elif path == _ALL and head.method == "PUT":
            handler = self._put_bulk
        else:
            return None
        scope: Scope = {
            "type": "http",
            "method": head.method,
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "headers": [*head.fields.items()],
            "client": (address, 0),
            WHOLE_BODY: write.body,
        }
        if not self._guard.is_privileged(scope):
            return None
        return self._answer(handler, _PlainRequest(scope, head.fields))

    async def _answer(self, handler: Handler, request: Request) -> FastAnswer:
        try:
            answer = await handler(request)
        except WriteRefused as error:
            answer = await problems.on_write_refused(request, error)
        except DiemError as error:
            answer = await problems.on_data_error(request, error)
        except HTTPException as error:
            answer = await on_http_error(request, error)
        except Exception as error:
            _logger.exception("a write failed", path=request.scope["path"])
            answer = await on_defect(request, error)
        fields = lines(self._guard.complete_written(answer, request.method))
        return FastAnswer(answer.status_code, fields, bytes(answer.body))


class _PlainFields(Headers):
    """Header fields found by their names in lower case, not by a search through all."""

    def __init__(self, scope: Scope, fields: Mapping[bytes, bytes]) -> None:
        super().__init__(scope=scope)
        self._fields = fields

    def __getitem__(self, key: str) -> str:
        return self._fields[key.encode("latin-1")].decode("latin-1")

    def __contains__(self, key: object) -> bool:
        return str(key).encode("latin-1") in self._fields

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401  # as Mapping declares it
        value = self._fields.get(key.encode("latin-1"))
        return default if value is None else value.decode("latin-1")


class _PlainRequest(Request):
    def __init__(self, scope: Scope, fields: Mapping[bytes, bytes]) -> None:
        super().__init__(scope)
        self._headers = _PlainFields(scope, fields)
