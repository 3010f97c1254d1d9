"""The multiplexing proxy: clients that know nothing of partitions in front, the servers that own them behind.

Reading order: ``proxy`` (readiness and status), ``routing`` (endpoint -> server, from the metadata service's snapshots
that ``snapshot_client`` receives), ``shared`` and ``passthrough`` (the two modes), ``relocation`` (where each endpoint
is subscribed, and when it moves), ``upstream_pool`` and ``upstream`` (links to servers), ``requests`` (what waits for
them), ``main``.
"""
