"""``diem recommend``: present the choice of ``learning.modes`` for a load.

Reading order: ``source`` (the load: numbers, statistics or the running system), ``advice`` (modes and
thresholds, from ``learning.modes``), ``render`` (tables and sentences).
"""
