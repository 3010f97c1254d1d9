"""Inspects a running system from outside, and prepares one; no process of a system imports this.

Reading order: ``commands`` (one module a group of commands, such as ``diem status``), then the room of a command:
``check`` (a cluster of Kafka), ``load`` and ``canary`` (clients that measure), ``size`` (brokers and partitions),
``hosts`` (files for several machines), ``prometheus`` (scrape configuration, alert rules, dashboard).
"""
