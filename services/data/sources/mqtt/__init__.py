"""MQTT: messages of a broker as changes of endpoints, at least once.

Reading order: ``table`` (``[[source]]``), ``messages`` (as records), ``connection`` (the library's thread), ``source``.
"""
