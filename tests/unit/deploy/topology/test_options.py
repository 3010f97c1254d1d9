import pytest

from deploy.topology import BadTopology, parse_settings


@pytest.mark.parametrize("text", ["", "data", "data:A", "data=A:b", ":A=b", "data:=b", "data:A B=c", "data:A=\0"])
def test_malformed_setting_is_refused(text: str) -> None:
    with pytest.raises(BadTopology, match="--set takes NAME:VARIABLE=VALUE"):
        parse_settings([text])
