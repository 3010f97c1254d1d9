"""``diem recommend``: present the choice of ``learning.modes`` for a load.

Reading order: ``source`` (the load: numbers, statistics or the running system), ``advice`` (modes, thresholds and the
map, from ``learning.modes``), ``by_plan`` (partitioned modes with a plan's placement), ``render`` (tables and
sentences).
"""
