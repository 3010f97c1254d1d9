"""`diem config`: the reference of all settings, as text."""

from collections.abc import Iterable, Iterator

from deploy.run import settings_of
from diem.process.reference import Setting, reference
from diem.process.settings import ProcessSettings


def config_lines(names: Iterable[str]) -> Iterator[str]:
    """Describe what all processes share, then what each of `names` has of its own. Raises `UnknownProcess`."""
    own = [(name, reference(settings_of(name), shared=False)) for name in names]
    for title, settings in [("every process", reference(ProcessSettings)), *own]:
        yield f"# {title}"
        for setting in settings:
            yield from _lines(setting)
        yield ""


def _lines(setting: Setting) -> Iterator[str]:
    yield f"{setting.variable}  ({setting.type}; default: {setting.default})"
    yield f"    {setting.description}"
