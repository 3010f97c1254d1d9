"""The root of all errors: a text from a template, and what copies and comparisons need."""

import copy
import pickle
from dataclasses import dataclass

import pytest

from diem.errors import DiemError
from diem.process.listeners import PortInUse
from services.data.errors import DataError, EndpointDeleted, InvalidDataset, MalformedBody


@dataclass(eq=False)
class Late(DiemError):
    """Too late."""

    template = "{what!r} came {seconds:.1f} s late: 100% {{sure}}"

    what: str
    seconds: float = 1.0


def test_the_text_is_the_template_with_the_attributes() -> None:
    assert str(Late("it", seconds=2.25)) == "'it' came 2.2 s late: 100% {sure}"


def test_the_text_of_an_error_without_template_is_its_argument() -> None:
    assert str(MalformedBody("100% {not} a template")) == "100% {not} a template"


@pytest.mark.parametrize(
    "error", [Late("x", seconds=3.0), PortInUse(port=1, host="h"), EndpointDeleted("/a", 7), InvalidDataset("x", "$")]
)
def test_an_error_outlives_copies(error: DiemError) -> None:
    for made in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # our own
        assert (type(made), str(made), vars(made)) == (type(error), str(error), vars(error))


def test_errors_are_compared_by_identity_as_all_exceptions_are() -> None:
    assert Late("x") != Late("x")
    assert len({Late("x"), Late("x")}) == 2


def test_class_attributes_hold_for_the_errors() -> None:
    assert PortInUse("h", 1).retriable
    assert not Late("x").retriable
    assert isinstance(EndpointDeleted("/a", 7), DataError)
    assert EndpointDeleted("/a", 7).code == "gone"
