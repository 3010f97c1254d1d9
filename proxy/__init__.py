"""Multiplexing proxy between partition-unaware clients and the servers that own the partitions.

Reading order: ``proxy`` (readiness, snapshots and status), ``routing`` (endpoint -> server, and the choice among
several for a hot endpoint, from the snapshots of the metadata service that ``snapshot_client`` receives),
``relocation`` (pure: where each endpoint is subscribed, its moves and its staleness), ``shared`` (executes the actions
of ``relocation``, and fans out updates), ``pending`` (requests that wait for servers), ``upstream`` and
``upstream_pool`` (links to servers), ``settings``, ``main``.
"""
