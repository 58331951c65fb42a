"""URIs of states: what of them a plan keeps, and what of a plan is trusted."""

from __future__ import annotations

import pytest

from drainer.errors import UsageError
from drainer.store.place import uri_to_keep, uri_to_open

EVIL = "endpoint=http://evil.example"


@pytest.mark.parametrize(
    ("uri", "of_it"),
    [
        ("s3://bucket/d?region=eu-west-1&endpoint=https://minio.example", "?region=eu-west-1"),
        (f"s3://bucket/d?{EVIL}", ""),
        (f"s3://bucket/d?AWS_ENDPOINT_URL=http://evil.example&aws_{EVIL}", ""),
        ("s3://bucket/d?proxy_url=http://evil.example&metadata_endpoint=http://evil.example", ""),
        ("s3://bucket/d?region=a.evil.example%23", ""),
        ("s3://bucket/d?aws_region=eu-west-1#x", "?aws_region=eu-west-1"),
    ],
)
def test_a_plan_keeps_no_endpoint(uri: str, of_it: str) -> None:
    assert uri_to_keep(uri) == f"s3://bucket/d{of_it}"


@pytest.mark.parametrize("uri", ["/srv/state", "file:///srv/state"])
def test_a_folder_is_what_it_is(uri: str) -> None:
    assert uri_to_keep(uri) == uri
    assert uri_to_open(uri, ()) == uri


def test_a_state_is_reached_by_what_a_person_named_in_its_bucket() -> None:
    known = f"s3://bucket/drains/d?region=eu-west-1&{EVIL}"
    own = "s3a://bucket/drains/p.json?endpoint=https://minio.example"
    assert uri_to_open(known, ()) is None
    assert uri_to_open(known, ["s3://other/d", "gs://bucket/d", "/bucket"]) is None
    endpoint = "endpoint=https://minio.example"
    assert uri_to_open(known, [own]) == f"s3://bucket/drains/d?region=eu-west-1&{endpoint}"
    assert uri_to_open(known, ["s3://bucket/x"]) == "s3://bucket/drains/d?region=eu-west-1"


def test_what_is_not_a_uri_is_refused() -> None:
    for uri in ("s3://[bucket/d", "s3://bucket]/d"):
        with pytest.raises(UsageError, match="not a valid URI"):
            uri_to_keep(uri)
