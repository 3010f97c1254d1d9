"""The cost of every scaling mode for a load, and which mode to run; pure, standard library only.

Reading order: ``load`` (what clients and writers do), ``configuration`` (the modes and their sizes), ``terms`` (which
constant of ``learning.costs`` each amount multiplies; plans use it too), ``model`` (the processes of a mode and their
use of CPU, memory, network and Kafka), ``recommend`` (sizes under requirements, choice, thresholds, map) and
``measured`` (recovery and delays of committed runs, which the model does not derive).
"""
