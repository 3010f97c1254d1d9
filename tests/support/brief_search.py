"""Plans that are searched for briefly: for what holds however long is searched."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from learning.placement import multilevel, refine


@contextmanager
def brief_search() -> Iterator[None]:
    """Let plans be searched from a seed or two, and perturbed once; also a decorator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multilevel, "SMALL_SEEDS", 2)
        patch.setattr(multilevel, "KICKS", 2)
        patch.setattr(refine, "PERTURBATIONS", ((1.3, 1.1, 1.03),))
        yield
