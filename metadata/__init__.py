"""The metadata service: publishes the owner of each endpoint to clients and proxies (docs/internals.md section 4).

It is stateless. The partition of an endpoint comes from the map in Kafka, the owner of a partition from the consumer
group of each clone. So any number of instances agree, and a new one is up to date within a second or two. While a group
rebalances or Kafka is unavailable, answers are from the last known state.

Reading order: ``directory`` holds the state read from Kafka and ``locate`` answers from it, both without I/O.
``assignments`` polls the groups in Kafka, ``server_load`` polls the servers. ``api`` serves clients, ``snapshot_feed``
serves proxies, ``status`` has readiness and metrics, ``main`` wires with ``settings``. ``plans`` moves endpoints to the
homes chosen by ``learning.placement``.
"""
