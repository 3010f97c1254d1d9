"""The fast path of writes: the handlers of the routes, for plain requests of privileged writers.

What it skips is the HTTP library, the routing, and the middleware around it, which take most of the time of a small
write. Rights, limits, counts and header fields are the guard's, and errors are mapped as by the routes.
"""

from collections.abc import Coroutine
from typing import Any, Final, cast

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from diem.errors import DiemError
from diem.links.fast_path import FastAnswer, PlainWrite, lines
from diem.links.rest import SECURITY_HEADERS, WHOLE_BODY, on_defect, on_http_error
from services.data.access.write_access import WriteAccess, WriteRefused, WriteRights
from services.data.api import problems
from services.data.api.data import DataApi
from services.data.api.guard import Guard, WriteHandler
from services.data.api.requests import PREFIX

_ALL: Final = PREFIX.encode()
_ONE: Final = f"{PREFIX}/".encode()
_logger = structlog.get_logger(__name__)


class FastWrites:
    """A :class:`~diem.links.fast_path.FastWritePath`.

    Args:
        data: handlers of the routes.
        guard: of the listener.
        write_access: identifies writers.
    """

    def __init__(self, data: DataApi, guard: Guard, write_access: WriteAccess) -> None:
        self._guard = guard
        self._write_access = write_access
        self._handlers: dict[str, WriteHandler] = {
            "PUT": data.put, "PATCH": data.patch, "POST": data.post, "DELETE": data.delete
        }  # fmt: skip
        self._put_bulk: WriteHandler = data.put_bulk

    def __call__(self, write: PlainWrite, address: str) -> Coroutine[Any, Any, FastAnswer] | None:
        """Answer a write, or leave it to the routes."""
        head = write.head
        path, _, query = head.target.partition(b"?")
        authorization = head.fields.get("authorization")
        if authorization is None or b"%" in path or not self._guard.is_own_host(head.fields["host"]):
            return None
        if path.startswith(_ONE):
            handler = self._handlers[head.method]
        elif path == _ALL and head.method == "PUT":
            handler = self._put_bulk
        else:
            return None
        writer = self._write_access.identify(authorization, writes=True)
        if writer is None:
            return None
        scope: Scope = {
            "type": "http",
            "method": head.method,
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "headers": (),
            "client": (address, 0),
            WHOLE_BODY: write.body,
        }
        request = Request(scope)
        # Names are in lower case in both, and so found without a search through a list of bytes.
        request._headers = cast("Headers", head.fields)  # noqa: SLF001 - where the library keeps them
        return self._answer(handler, request, writer)

    async def _answer(self, handler: WriteHandler, request: Request, writer: WriteRights) -> FastAnswer:
        try:
            answer = await handler(request, writer)
        except WriteRefused as error:
            answer = await problems.on_write_refused(request, error)
        except DiemError as error:
            answer = await problems.on_data_error(request, error)
        except HTTPException as error:
            answer = await on_http_error(request, error)
        except Exception as error:
            _logger.exception("a write failed", path=request.scope["path"])
            answer = await on_defect(request, error)
        self._guard.requests[request.scope["method"], answer.status_code] += 1
        return FastAnswer(answer.status_code, lines([*answer.raw_headers, *SECURITY_HEADERS]), bytes(answer.body))
