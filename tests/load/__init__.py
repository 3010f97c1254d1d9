"""The load harness: clients, writes and faults for a running system, judged by the oracle."""
