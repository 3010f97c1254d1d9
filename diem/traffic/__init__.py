"""Recording of clients' subscriptions, as input for planning; it never delays clients.

Reading order: ``recorder`` (bounded queues of events), ``salt`` (the day's pseudonyms), ``sinks`` (the interface, and
files) and ``kafka_sink``, ``recording`` (the task that writes events to the sink for the life of a process),
``settings``.
"""
