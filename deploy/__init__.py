"""``diem``, the command line, and what it runs on one machine or against a cluster.

Reading order: ``cli`` (one module a group of commands), ``topology`` (processes of a mode, pure), ``system`` (the
running ``diem up``), ``admin`` (its operator page), ``clients`` (of running services); ``planning``, ``check`` and
``size`` are the large commands, ``kafka``, ``spark`` and ``nginx`` third-party programs, ``prometheus`` what monitors
all of it, ``audit`` the packages that it is made of. ``terminal``, ``invocation`` (commands in messages) and ``jars``
are shared.
"""
