"""What the environment says of an S3 service, and what its clients are given."""

from pathlib import Path

import pytest

from learning.jobs.bucket import BadBucket, BucketPath, ObjectStore, delta_location, service, spark_settings
from learning.jobs.spark_options import SparkOptions, SparkSettings, configuration

PREFIX = "spark.hadoop.fs.s3a."


def test_the_service_is_that_of_the_standard_variables() -> None:
    assert service({}) == ObjectStore(None, None)
    assert service({"AWS_DEFAULT_REGION": "eu-central-1"}) == ObjectStore(None, "eu-central-1")
    own = {"AWS_ENDPOINT_URL": "http://minio:9000/"}
    assert service(own) == ObjectStore("http://minio:9000", "us-east-1")
    assert service(own | {"AWS_ENDPOINT_URL_S3": "https://s3", "AWS_REGION": "x"}) == ObjectStore("https://s3", "x")
    with pytest.raises(BadBucket, match="not minio:9000"):
        service({"AWS_ENDPOINT_URL": "minio:9000"})


def test_spark_and_delta_use_the_same_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    monkeypatch.setenv("AWS_REGION", "somewhere")
    uri, options = delta_location(BucketPath("bucket", "a"))
    found = spark_settings(Path("/scratch"))
    assert uri == "s3://bucket/a"
    assert options is not None
    assert (options["aws_endpoint"], options["aws_region"]) == ("http://minio:9000", "somewhere")
    assert (options["allow_http"], options["aws_conditional_put"]) == ("true", "etag")
    assert (found[f"{PREFIX}endpoint"], found[f"{PREFIX}endpoint.region"]) == ("http://minio:9000", "somewhere")
    assert (found[f"{PREFIX}path.style.access"], found[f"{PREFIX}buffer.dir"]) == ("true", "/scratch/s3a")
    assert delta_location(Path("/here")) == ("/here", None)


def test_a_session_has_a_connector_only_with_a_bucket_and_the_operator_wins() -> None:
    conf = ((f"{PREFIX}attempts.maximum", "9"),)
    made = [
        configuration(SparkOptions(Path("/scratch"), SparkSettings(conf=conf), bucket=bucket), {})
        for bucket in (False, True)
    ]
    assert f"{PREFIX}retry.limit" not in made[0]
    assert (made[1][f"{PREFIX}retry.limit"], made[1][f"{PREFIX}attempts.maximum"]) == ("3", "9")
