"""A running `diem up`: the processes of one topology on this machine.

Reading order: ``up`` (start, supervise, stop), ``launch`` (programs and their environment), ``scaling``,
``process_logs``; ``control`` is the socket that other commands ask, ``state_dir`` the files that they share, and
``description`` the answer of ``status``. ``pdeathsig`` starts programs that are not ours.
"""
