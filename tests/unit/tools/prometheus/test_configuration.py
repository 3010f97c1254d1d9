"""The ``prometheus.yml`` that is printed."""

from pathlib import Path

import yaml

from deploy.system.scrape_targets import Target
from tools.prometheus.configuration import ALERTS, configuration

KEY = Path("/etc/prometheus/the key")


def test_file_of_targets_is_followed() -> None:
    document = yaml.safe_load("\n".join(configuration(KEY, Path("/state/targets.json"))))
    assert document["global"] == {"scrape_interval": "15s", "evaluation_interval": "15s"}
    assert document["rule_files"] == [str(ALERTS)]
    assert document["scrape_configs"] == [
        {
            "job_name": "diem",
            "authorization": {"credentials_file": str(KEY)},
            "file_sd_configs": [{"files": ["/state/targets.json"]}],
        }
    ]


def test_static_targets_are_listed_with_their_labels() -> None:
    targets = [Target("127.0.0.1:9080", {"process": "data", "mode": "x"}), Target("h:1", {"number": "1"})]
    (job,) = yaml.safe_load("\n".join(configuration(KEY, targets)))["scrape_configs"]
    assert "file_sd_configs" not in job
    assert job["static_configs"] == [
        {"targets": ["127.0.0.1:9080"], "labels": {"process": "data", "mode": "x"}},
        # A string: labels are no numbers.
        {"targets": ["h:1"], "labels": {"number": "1"}},
    ]
