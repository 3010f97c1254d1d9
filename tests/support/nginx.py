"""Skip tests of the modes behind nginx where it is not installed."""

import pytest

from deploy import nginx
from deploy.nginx import NoNginx


def _why_not() -> str:
    try:
        nginx.find()
    except NoNginx as error:
        return str(error)
    return ""


needs_nginx = pytest.mark.skipif(bool(_why_not()), reason=_why_not())
