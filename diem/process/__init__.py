"""One process: settings, life cycle, logs, all metrics, keys, TLS; the table of modes; supervision of processes.

Reading order: ``settings`` (and ``service_links``, ``numbers``, ``edge_settings``), ``lifecycle``, ``log``, ``metrics``
and ``exposition``, ``listeners``, ``tls`` and ``forwarding``, ``http_transport``, ``address_rules`` and ``allow_list``,
``files`` and ``private_files``, ``auth`` and ``key_ring``, ``limits`` (of clients and addresses; their settings are in
``edge_settings``, the Data Service's in ``services.data``), ``security_log``, ``clock``, ``tasks``; ``supervisor`` with
``backoff``, ``watchdog``, ``program``, ``modes`` (the table) and ``ports`` for processes that start others; ``imports``
makes starts cheaper.
"""
