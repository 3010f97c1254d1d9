from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from diem.links.handover import Handover
from diem.links.internal import InternalListener
from diem.process.auth import SharedKey


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {(await request.body()).decode()}")


async def test_one_client_may_ask_the_application_and_the_listener_in_turn(tmp_path: Path) -> None:
    app = Starlette(routes=[Route("/v1/things", echo, methods=["GET", "POST"])])
    (tmp_path / "key").write_text("k" * 43)
    (tmp_path / "key").chmod(0o600)
    listener = InternalListener(
        "127.0.0.1",
        0,
        key=SharedKey.load(tmp_path / "key"),
        ready=lambda: None,
        status=dict,
        handover=Handover(app, "/v1/things"),
    )
    await listener.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False) as http:
            for _ in range(2):
                assert (await http.post("/v1/things", content=b"a")).text == "POST a"
                assert (await http.get("/livez")).status_code == 200
                assert (await http.get("/v1/other")).status_code in {401, 404}
    finally:
        listener.stop()
