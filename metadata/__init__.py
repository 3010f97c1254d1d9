"""The metadata service: tells clients and proxies which server has an endpoint (docs/protocol.md section 4).

What it knows comes from Kafka, and it keeps nothing of its own: the map says which partition an endpoint has, the group
of each clone which of its servers owns a partition. So any number of instances agree, and one that is started anew
knows all within a second or two. What it knew last is what it answers while a group rebalances or Kafka is away.

Inwards first: ``directory`` keeps what was read, ``locate`` makes answers of it (these do no I/O). ``assignments``
reads the groups, ``loads`` asks the servers how many clients they have. ``public`` serves clients, ``partitions``
serves proxies, ``report`` says how the process is, ``main`` wires.
"""
