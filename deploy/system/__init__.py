"""A running ``diem up``: the processes of one topology on this machine.

Reading order: ``up`` (start, supervise, stop), ``launch`` (programs and their environment), ``scaling``,
``process_logs``, ``process_events``; ``control`` is the socket for other commands, ``state_dir`` the files that they
share, ``description`` the reply of ``status``, and ``source_health`` the failing sources of its reports in words.
``pdeathsig`` starts third-party programs.
"""
