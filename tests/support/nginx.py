"""Says where nginx is missing: tests of the modes behind it are then skipped, with one line."""

import pytest

from deploy.nginx import program
from deploy.nginx.program import NoNginx


def _why_not() -> str:
    try:
        program.find()
    except NoNginx as error:
        return str(error)
    return ""


needs_nginx = pytest.mark.skipif(bool(_why_not()), reason=_why_not())
