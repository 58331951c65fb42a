"""URIs of object stores: what of them a plan keeps, and is believed in.

A plan may come from a stranger, and requests to a store are signed. So its endpoint and all else
that says where requests go comes from a person: with ``--state``, the plan's own URI or the
environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from drainer.errors import UsageError

STORES = {  # schemes, and what obstore calls them
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
}
_REGION_NAMES = ("region", "aws_region", "default_region", "aws_default_region")
_REGION = re.compile(r"[a-z0-9-]+")  # or it would be a host: s3.REGION.amazonaws.com


def is_folder(uri: str) -> bool:
    """Whether a URI names a folder, and no object store. Raises UsageError."""
    return "://" not in uri or split(uri).scheme == "file"


def kept(uri: str) -> str:
    """URI of a state as a plan keeps it: of its options the region alone.

    Raises UsageError when it can't be understood.
    """
    return uri if is_folder(uri) else _with_options(uri, {})


def reached(uri: str, named: Iterable[str]) -> str | None:
    """URI of the state that a plan names, with the options of what a person named; None when no
    person has named its bucket. Raises UsageError as ``kept``."""
    if is_folder(uri):
        return uri
    for each in named:
        if _bucket(each) == _bucket(uri):
            return _with_options(uri, dict(parse_qsl(split(each).query)))
    return None


def _with_options(uri: str, options: dict[str, str]) -> str:
    parts = split(uri)
    region = {
        name: value
        for name, value in parse_qsl(parts.query)
        if name in _REGION_NAMES and _REGION.fullmatch(value)
    }
    query = urlencode(region | options, safe=":/")
    return parts._replace(query=query, fragment="").geturl()


def split(uri: str) -> SplitResult:
    """Raises UsageError when it can't be understood."""
    try:
        return urlsplit(uri)
    except ValueError:
        raise UsageError(
            "the place of the state is not a valid URI", hint="Write it like s3://bucket/path."
        ) from None


def _bucket(uri: str) -> tuple[str, str]:
    parts = split(uri)
    return STORES.get(parts.scheme, parts.scheme), parts.netloc
