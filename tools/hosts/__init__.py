"""Files with which service managers run a mode on several hosts (``diem config MODE --hosts``); nothing is started.

Reading order: ``inventory`` (the hosts and their roles), ``assignment`` (which process runs where, with its settings),
``env_file`` and ``units`` (forms of files), ``keys`` (which host has which), ``files`` (all files of a host),
``readme``, ``output`` (writes what has changed), ``verification`` (what was written is read as systemd, nginx and the
processes read it), ``status`` (what runs there).
"""
