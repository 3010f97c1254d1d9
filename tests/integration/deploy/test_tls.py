"""`diem up` with a certificate: pages, REST and WebSockets over TLS, and a certificate that is replaced."""

import asyncio
import contextlib
import os
import signal
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from diem.client import UpdatesClient
from diem.process.tls import HSTS, client_context
from tests.integration.deploy.clients import NAME, put
from tests.integration.deploy.running import DIEM, Running, diem, environment, up
from tests.support.certificates import Authority, Issued, serial_of
from tests.support.patience import PATIENCE_S, until
from tests.support.required import in_cluster

MODES = [
    pytest.param(("--mode", "single"), False, id="single"),
    pytest.param(
        ("--mode", "x-broadcast", "--servers", "1"), False, id="nginx", marks=in_cluster("nginx has TLS in other tests")
    ),
    pytest.param(("--mode", "z-proxy", "--servers", "1"), True, id="proxy", marks=pytest.mark.takes(15)),
    pytest.param(
        ("--mode", "z-composite", "--servers", "1"), True, id="composite", marks=in_cluster("proxies have it, too")
    ),
]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def options_of(issued: Issued) -> tuple[str, ...]:
    return ("--tls-certificate", str(issued.certificate), "--tls-key", str(issued.key))


async def certificates(running: Running, context: ssl.SSLContext) -> set[int]:
    """Return the serial numbers that the public listeners show."""
    urls = running.described()["urls"]
    found = set()
    for url in (urls["page"], *urls["websocket"]):
        _, writer = await asyncio.open_connection("localhost", urlsplit(url).port, ssl=context)
        found.add(serial_of(writer.get_extra_info("ssl_object").getpeercert(True)))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return found


@pytest.mark.parametrize(("mode", "behind_kafka"), MODES)
async def test_clients_connect_over_tls_and_a_renewed_certificate_cuts_nobody(
    tmp_path: Path, authority: Authority, mode: tuple[str, ...], behind_kafka: bool, request: pytest.FixtureRequest
) -> None:
    if behind_kafka:
        mode = (*mode, *request.getfixturevalue("on_kafka"))
    first, context = authority.issue(), client_context(authority.file)
    async with up(tmp_path, *mode, *options_of(first)) as running:
        urls = running.described()["urls"]
        page = urls["page"].replace("127.0.0.1", "localhost")
        (url,) = (each.replace("127.0.0.1", "localhost") for each in urls["websocket"])
        assert (urlsplit(page).scheme, urlsplit(url).scheme) == ("https", "wss")
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=PATIENCE_S) as http:
            answer = await http.get(f"{page}config.json")
            assert answer.headers["strict-transport-security"] == HSTS
            assert [entry["port"] for entry in answer.json()["servers"]] == [urlsplit(url).port]
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, ssl=context, origin="http://localhost:1", proxy=None)  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        async with UpdatesClient(url, origin=page.rstrip("/"), tls=context) as client:
            await client.subscribe({NAME: None})
            seen: list[tuple[str, int | None]] = []

            async def follow() -> None:
                nonlocal seen
                async for event in client:
                    seen += [(event.kind, event.version)]

            following = asyncio.create_task(follow())
            version = await put(running, 1)  # `diem put` knows the system's own certificate
            await until(lambda: ("update", version) in seen)
            assert await certificates(running, context) == {first.serial}
            second = authority.issue()
            os.kill(running.process.pid, signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                while await certificates(running, context) != {second.serial}:
                    await asyncio.sleep(0.1)
            version = await put(running, 2)
            await until(lambda: ("update", version) in seen)
            assert "closed" not in dict(seen)
            following.cancel()
            await asyncio.wait({following})


async def test_unusable_certificate_is_not_taken_over(tmp_path: Path, authority: Authority) -> None:
    issued, context = authority.issue(), client_context(authority.file)
    async with up(tmp_path, *options_of(issued)) as running:
        issued.certificate.write_text("spoilt")
        os.kill(running.process.pid, signal.SIGHUP)
        await until(lambda: any("not replaced" in line for line in running.output))
        assert await certificates(running, context) == {issued.serial}


async def test_watch_command_follows_over_tls(tmp_path: Path, authority: Authority) -> None:
    async with up(tmp_path, *options_of(authority.issue(("diem.example",)))) as running:
        version = await put(running, 1)
        code, out, _ = await diem("get", NAME, cwd=tmp_path)
        assert code == 0
        assert '"value":1' in out.replace(" ", "")
        assert version
        watching = await asyncio.create_subprocess_exec(
            *DIEM, "watch", NAME, cwd=tmp_path, env=environment(), stdout=asyncio.subprocess.PIPE
        )
        assert watching.stdout is not None
        line = await asyncio.wait_for(watching.stdout.readline(), PATIENCE_S)
        assert str(version) in line.decode()
        watching.terminate()
        await watching.wait()


async def test_public_address_without_tls_is_refused(tmp_path: Path, authority: Authority) -> None:
    for options, reason in (
        (("--listen", "0.0.0.0"), "would send everything unencrypted"),
        (("--listen", "diem.example"), "--listen is ADDRESS"),
        (("--tls-key", "key.pem"), "--tls-key needs --tls-certificate"),
        (("--tls-certificate", "none.pem"), "cannot be used: No such file"),
        (("--origin", "diem.example"), "--origin: an origin is"),
        (("--front-proxy", "front.example"), "--front-proxy: "),
    ):
        code, _, err = await diem("up", *options, cwd=tmp_path)
        assert (code, len(err.splitlines())) == (2, 1), err
        assert reason in err
