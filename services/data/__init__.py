"""The Data Service: owns the datasets, versions every change, and serves the data and the feed of changes.

Reading order: ``main`` (wiring), ``settings`` and ``limits``, ``kinds``, ``byte_lru`` (the caches of the next two) and
``large`` (their threads), ``store``, ``api`` (``cache_control``: external caches, ``pages``: the operator's own files)
and ``access``, ``sources``, ``publisher``, ``backup``; ``report`` (status) and ``errors``.
"""
