"""Learn a placement and a mode from recorded traffic; nothing that serves clients imports this.

Reading order: ``statistics`` (of a window of traffic) and ``jobs`` (the same and the tables, in Spark, which ``spark``
runs); ``placement`` chooses the partition of every endpoint, by the constants in ``costs``; ``modes`` has the cost of
every scaling mode, ``sizing`` the bounds of brokers and partitions. ``planning``, ``recommend`` and ``commands`` show
all that: ``diem pipeline``, ``plan``, ``apply``, ``autoplan`` and ``recommend``.
"""
