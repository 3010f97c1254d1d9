"""Packages that only some types of sources need."""

from collections.abc import Iterator
from contextlib import contextmanager

from diem.errors import ConfigurationError, install_command


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Raise ConfigurationError, with the remedy, if an import in this context lacks a package of an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is not installed: {install_command(extra)}") from error
