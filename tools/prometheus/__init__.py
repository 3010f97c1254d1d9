"""What Prometheus and Grafana need: scrape configuration, alert rules (``alerts.yaml``) and ``dashboard.json``.

Reading order: ``targets`` (addresses and labels of the running processes), ``configuration`` (``prometheus.yml``).
"""
