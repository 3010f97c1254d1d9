"""The metadata service: clients and proxies learn from it which server has an endpoint (docs/protocol.md section 4).

What it knows comes from Kafka, and it keeps nothing of its own: the map says which partition an endpoint has, the group
of each clone which of its servers owns a partition. So any number of instances agree, and one that is started anew
knows all within a second or two. What it knew last is what it answers while a group rebalances or Kafka is away.

Inwards first: ``directory`` keeps what was read, ``locate`` answers from it (these do no I/O). ``assignments``
polls the groups in Kafka, ``server_load`` polls the servers. ``api`` serves clients, ``snapshot_feed`` serves proxies,
``status`` has readiness and metrics, ``main`` wires. ``plans`` moves endpoints; ``costs`` has the figures of planning.
"""
