"""Planning of partitions from recorded traffic: ``diem plan``, ``apply``, ``rollback``, ``plans`` and ``autoplan``.

Reading order: ``context`` (command-line values and the running system), ``traffic_input`` (what a plan is computed
from), ``planner`` (compute and evaluate), ``render`` (tables and text), ``apply`` (select a plan and monitor its
migration), ``autoplan`` (the loop over these commands).
"""
