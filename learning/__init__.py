"""Learns a placement and a mode from recorded traffic; never imported by processes that serve clients.

Reading order: ``statistics`` (of a window of traffic) and ``jobs`` (the same and the tables in Spark, run by
``spark``); ``placement`` chooses the partition of every endpoint, by the constants in ``costs``; ``modes`` has the cost
of every scaling mode, ``sizing`` the bounds of brokers and partitions. ``planning``, ``recommend`` and ``commands`` are
the user interface: ``diem pipeline``, ``plan``, ``apply``, ``autoplan`` and ``recommend``.
"""
