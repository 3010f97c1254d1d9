"""The data pipeline (docs/traffic.md): recorded traffic becomes tables and statistics, in PySpark.

Reading order: ``warehouse`` is the layout on disk, and ``delta_table`` the
tables of one source in it. ``sources`` and ``traffic_topic`` provide lines, ``tables`` parses them into rows,
``ingest`` runs the streaming query, with its progress in ``checkpoint``. ``maintenance``
merges files of past days and drops old days, ``erasure`` removes a client's data. ``statistics`` and ``usage_report``
compute from the tables; ``history`` condenses earlier events for the statistics of later windows. ``spark_options``
configures Spark, ``spark_session`` starts and ends the JVM, and ``executors`` prepares a cluster's.

Only these modules import PySpark. Those that always need it import it at module level, and are themselves imported once
it is known to be installed; ``warehouse``, ``delta_table``, ``sources``, ``traffic_topic``, ``checkpoint``,
``maintenance``, ``erasure`` and ``spark_options`` work without it. The command line calls ``ingest``, ``statistics``,
``usage_report`` and ``erasure`` (``learning.spark``).
"""
