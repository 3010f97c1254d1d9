"""Multiplexing proxy: clients that know nothing of partitions on one side, the servers that own them on the other.

Reading order: ``proxy`` (readiness, snapshots and status), ``routing`` (endpoint -> server, from the metadata service's
snapshots that ``snapshot_client`` receives), ``relocation`` (pure: where each endpoint is subscribed, when it moves,
whether it is stale), ``shared`` and ``passthrough`` (the two modes, which carry out its actions), ``pending`` (requests
that wait for servers), ``upstream`` and ``upstream_pool`` (links to servers), ``settings``, ``main``.
"""
