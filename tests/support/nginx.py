"""A real nginx for tests: skipped where it is not installed, and with other times than those of operation."""

import pytest

from deploy import nginx
from deploy.nginx import NoNginx


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
