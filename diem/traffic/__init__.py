"""Recording of what clients subscribe to, as input for planning; clients are never delayed by it.

Reading order: ``recorder`` (bounded queues of events), ``sinks`` (files; the interface) and ``kafka_sink``,
``recording`` (the task that carries events to the sink, around the life of a process), ``settings``.
"""
