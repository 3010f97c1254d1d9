"""The Data Service: owns the datasets, versions every change, and serves the data and the feed of changes.

Reading order: ``main`` (wiring), ``settings`` and ``limits``, ``datasets``, ``byte_lru`` (the caches of the next two),
``store``, ``api`` (``cache_control``: the caches of others, ``pages``: files of the operator's own) and ``access``,
``sources``, ``publisher``, ``backup``; ``report`` (status) and ``errors``.
"""
