"""Random walks: the real parts wired together without sockets, under a clock of the test's own.

A walk draws its steps from hypothesis, so that a failure is shrunk to the shortest sequence that still fails.
``make test`` runs each walk over the same few examples every time; ``make walks`` (``python -m tests.walks``) runs them
with new seeds for ten minutes and prints each seed, by which a failure can be repeated. Shrinking may take minutes, so
``make test`` leaves it out: ``DIEM_WALKS_SHRINK=1`` has it shrink what has failed there.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_FACTOR = "DIEM_WALKS_FACTOR"
_SHRINK = "DIEM_WALKS_SHRINK"


def walk_settings(*, examples: int, steps: int = 50) -> settings:
    """Return the settings of one walk.

    Args:
        examples: four times the number in ``make test``, where they are the same each time, and take a second or so.
        steps: bound on the steps of one example, where the walk is a state machine.
    """
    factor = int(os.environ.get(_FACTOR, "0"))
    phases = (Phase.explicit, Phase.generate, *([Phase.shrink] if factor or os.environ.get(_SHRINK) else ()))
    return settings(
        phases=phases,
        max_examples=examples * factor or examples // 4,
        stateful_step_count=steps,
        derandomize=not factor,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
