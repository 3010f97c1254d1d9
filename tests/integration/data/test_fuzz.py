"""The service does what its OpenAPI description says, whatever it is sent: schemathesis, bounded in examples."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from diem.process.auth import SharedKey
from services.data.api import Api, ApiOptions
from services.data.api.plan import Rate
from services.data.store import Store

KEY = "a-write-key-of-the-tests"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The application on an event loop of its own: schemathesis calls it from plain functions."""
    path = tmp_path_factory.mktemp("fuzz")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def on_loop(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    store = on_loop(Store.open(f"sqlite:///{path / 'data.db'}"))
    serving = store.serving()
    on_loop(serving.__aenter__())
    fast = Rate(1e6, 1e6)
    options = ApiOptions(page_dir=path / "dist", hosts=frozenset({"*"}), rate=fast, loopback_rate=fast)
    api = Api(store, SharedKey(KEY), lambda _endpoint: None, options)

    async def bridge(scope: Scope, receive: Receive, send: Send) -> None:
        own = asyncio.get_running_loop()

        def over(call: Any) -> Any:
            async def called(*arguments: Any) -> Any:
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(*arguments), own))

            return called

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(api(scope, over(receive), over(send)), loop))

    yield bridge
    on_loop(serving.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
