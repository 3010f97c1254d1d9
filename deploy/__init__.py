"""``diem``, the command line, and the systems it runs on one machine or against a cluster.

Reading order: ``cli`` (one module a group of commands), ``topology`` (processes of a mode, pure), ``system`` (the
running ``diem up``), ``admin`` (its operator page), ``clients`` (of running services); ``kafka`` and ``nginx`` are
third-party programs. ``terminal``, ``invocation`` (commands in messages) and ``jars`` are shared. ``learning`` and
``tools`` have the commands that no running process needs.
"""
