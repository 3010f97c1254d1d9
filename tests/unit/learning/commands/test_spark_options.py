"""Options of Spark on the command line."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from learning.commands.spark_options import parse_conf, parse_folder, with_spark_options
from learning.jobs.spark_options import SparkSettings


def test_a_command_receives_the_settings() -> None:
    found = list[SparkSettings]()

    def command(*, settings: SparkSettings) -> int:
        found.append(settings)
        return 0

    cli = typer.Typer()
    cli.command()(with_spark_options(command))
    expected = SparkSettings("yarn", (("spark.a", "b=c"),))
    for arguments in ([], expected.arguments()):
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert found == [SparkSettings(), expected]


@pytest.mark.parametrize("text", ["/a b", "file:///a%20b", "file:/a%20b", "file://localhost/a%20b"])
def test_a_folder_is_a_path_or_a_file_uri(text: str) -> None:
    assert parse_folder(text) == Path("/a b")


@pytest.mark.parametrize("text", ["hdfs:///warehouse", "s3://bucket/a", "file://host/warehouse", "file:rel"])
def test_other_uris_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a path or file: URI: mount other stores"):
        parse_folder(text)


@pytest.mark.parametrize("text", ["spark.a", "=1", "a=1"])
def test_a_setting_has_a_name_of_spark_and_a_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"spark\.NAME=VALUE"):
        parse_conf([text])
