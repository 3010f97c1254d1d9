"""Settings that a person gives to one process of a `diem up`: `--set NAME:VARIABLE=VALUE`."""

import re
from collections.abc import Collection, Iterable, Mapping

from deploy.topology.options import BadTopology

_FORM = re.compile(r"([a-z0-9-]+):([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def parse_settings(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the variables by process; a later one of a name wins.

    Raises:
        BadTopology: one is not NAME:VARIABLE=VALUE.
    """
    parsed: dict[str, dict[str, str]] = {}
    for text in texts:
        match = _FORM.fullmatch(text)
        if match is None or "\0" in text:
            raise BadTopology(f"--set takes NAME:VARIABLE=VALUE (websocket-1:DIEM_LOG_LEVEL=debug), not {text!r}")
        name, variable, value = match.groups()
        parsed.setdefault(name, {})[variable] = value
    return parsed


def check_settings(settings: Mapping[str, object], names: Collection[str]) -> None:
    """Refuse settings for processes that there are not.

    Raises:
        BadTopology: with the name of the first one.
    """
    for name in settings:
        if name not in names:
            raise BadTopology(f"--set: no process is called {name!r} here: there are {', '.join(names)}")
