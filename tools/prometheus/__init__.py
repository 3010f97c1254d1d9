"""Files for Prometheus and Grafana: scrape configuration, alert rules (``alerts.yaml``) and ``dashboard.json``.

``configuration`` makes ``prometheus.yml`` from the targets of ``deploy.system.scrape_targets``.
"""
