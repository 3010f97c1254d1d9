"""A real nginx for tests: skipped where it is not installed, and with other times than those of operation."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from deploy import nginx
from deploy.nginx import NoNginx
from tests.support.patience import until

_FRONT: Final = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  {http}
}}
"""
_GUIDE: Final = Path(__file__).parents[2] / "docs" / "going-public.md"


def documented(name: str) -> str:
    """Return a configuration of the guide."""
    (text,) = re.findall(f"```nginx {re.escape(name)}\n(.*?)```", _GUIDE.read_text(), re.DOTALL)
    return str(text)


@contextlib.asynccontextmanager
async def front_nginx(directory: Path, http: str, port: int) -> AsyncIterator[None]:
    """Run an nginx that is not ours with these directives in ``http``, of which one listens on the port."""
    nginx.write(directory, _FRONT.format(directory=directory, http=http))
    process = await asyncio.create_subprocess_exec(*nginx.argv(nginx.find(), directory))
    try:
        await until(lambda: _is_accepting(process, port))
        yield
    finally:
        process.terminate()
        await process.wait()


def _is_accepting(process: asyncio.subprocess.Process, port: int) -> bool:
    assert process.returncode is None
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _why_not() -> str:
    try:
        nginx.find()
    except NoNginx as error:
        return str(error)
    return ""


def changed(text: str, usual: str, here: str, times: int = 1) -> str:
    """Return a configuration in which ``here`` replaces ``usual``, which it has so many times."""
    assert text.count(usual) == times
    return text.replace(usual, here)


def with_probe(text: str, seconds: int) -> str:
    """Return a configuration in which a server may take so long to answer a probe."""
    return changed(text, f"proxy_read_timeout {nginx.PROBE_S}s;", f"proxy_read_timeout {seconds}s;")


needs_nginx = pytest.mark.skipif(bool(_why_not()), reason=_why_not())
