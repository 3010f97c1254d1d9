"""Files for service managers to run a mode on several hosts (``diem config MODE --hosts``); nothing is started.

Reading order: ``inventory`` (the hosts and their roles), ``assignment`` (which process runs where, with its settings),
``env_file`` and ``units`` (forms of files), ``keys`` (of each host), ``files`` (all files of a host), ``readme``,
``output`` (writes changed files), ``verification`` (reads the files like systemd, nginx and the processes), ``status``
(of the running processes).
"""
