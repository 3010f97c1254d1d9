"""Sizing of a Kafka cluster and of a topic: arithmetic alone, on the standard library.

The model of chapter 5 of the thesis (Amazon's, with upper bounds of its own), and the program of "On efficiently
partitioning a topic in Apache Kafka" (Raptis and Passarella, 2022), here "the paper". ``make figures`` writes
every table and figure of both, docs/sizing.md says where they disagree with what is computed.

Reading order: ``kafka`` has equations 4 to 11, ``even`` the evenness of numbers of partitions, ``solver`` the binding
bound of a workload.
"""
