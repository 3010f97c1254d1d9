"""The multiplexing proxy: clients that know nothing of partitions in front, the servers that own them behind.

Reading order: ``proxy`` (readiness and status), ``routing`` (endpoint -> server, from the metadata service's snapshots
that ``watch`` receives), ``shared`` and ``passthrough`` (the two modes), ``follower`` (where each endpoint is
subscribed, and when it moves), ``standing`` and ``upstream`` (links to servers), ``requests`` (what waits for them),
``main``.
"""
