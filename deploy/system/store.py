"""The store of a system: its URL, from an environment or from the running ``diem up``.

The URL may have a password: it is in no file, and crosses the control socket alone.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.system import control
from deploy.system.state_dir import StateDir
from diem.process.auth import read_secret
from diem.process.settings import from_environment, secret_files

COMMAND: Final = "store"
"""Command of the control socket; its reply has ``database_url``."""
_RELATIVE: Final = re.compile(r"(sqlite[^:]*:///)(?=[^/])")


def configured_url(environ: Mapping[str, str]) -> str:
    """Return the URL of the store that a Data Service with this environment opens, with an absolute path.

    Raises:
        BadKeyFile: the URL is in an unusable file.
    """
    from services.data.settings import Settings  # noqa: PLC0415  # `diem up` needs it only when asked

    given = from_environment(Settings, environ)
    url = given.get("database_url")
    if url is None and (file := secret_files(Settings, environ).get("database_url")):
        url = read_secret(file)
    if url is None:
        fields = {"state_dir": given["state_dir"]} if "state_dir" in given else {}
        url = Settings.model_validate(fields).database_url.get_secret_value()
    return _RELATIVE.sub(lambda scheme: f"{scheme[0]}{Path.cwd()}/", url, count=1)


async def running_url(state: StateDir) -> str:
    """Return the URL of the running system's store.

    Raises:
        NotUp: none runs in the state directory.
        ControlFailed: it does not answer, or refuses.
    """
    return str((await control.request(state, COMMAND))["database_url"])
