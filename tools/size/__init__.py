"""``diem size``: brokers, partitions, replicas and their cost for a workload, by the model in ``learning.sizing``.

Reading order: ``workload`` (figures of a workload with their origin, and the model's inputs), ``sizing`` (the results,
pure), ``report`` (table and JSON). ``measure`` reads the figures of a running system. The command is
in ``tools.commands.size``.
"""
