"""Planning of partitions from recorded traffic: shared by ``diem plan``, ``apply`` and ``autoplan``.

Reading order: ``context`` (the running system and its metadata service), ``traffic_input`` (the input of a plan;
``intervals`` reads files of others), ``planner`` (compute and evaluate), ``render`` (tables and text).
"""
