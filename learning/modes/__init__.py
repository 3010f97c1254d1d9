"""The cost of every scaling mode for a load, and the choice of a mode; pure, standard library only.

Reading order: ``load`` (clients and writers), ``configuration`` (the modes and their sizes), ``terms`` (amounts with
their constants of ``learning.costs``, also for plans), ``model`` (the processes of a mode and their use of CPU, memory,
network and Kafka), ``recommend`` (sizes under requirements, choice, thresholds, map) and ``measured`` (recovery and
delays of committed runs, which the model does not derive).
"""
