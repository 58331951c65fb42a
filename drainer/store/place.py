"""Where plans and states are: the path of a file, or the URI of an object in a store.

A plan may also be in a topic: ``kafka://TOPIC/NAME``.

A plan may come from a stranger, and drainer signs its requests to a store with this user's
credentials. So the plan must not decide where requests go. The endpoint, and everything else that
decides it, comes from a person: from ``drainer.state``, from the URI by which the person names the
plan, or from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias, TypeGuard
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from drainer.errors import UsageError
from drainer.model.terms import name_of

PlanPlace: TypeAlias = Path | str  # A str is the URI of an object, or of a plan in a topic.

PLANS = "*.plan.json"
# The longest name of a plan. File systems allow 255 characters, and the names of the files beside
# a plan are longer than its own.
NAME_CHARACTERS = 200


_IN_TOPIC = "kafka://"
# Kafka's rule for names of topics. It excludes the slash, which separates the parts of a key. Names
# of plans that were set aside are longer than NAME_CHARACTERS, and keep the rule, too.
_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}", re.ASCII)


def default_path(topic: str, group: str, *, commits: bool = True) -> Path:
    """Return the default path of a plan: a file in the current folder, named by topic and group."""
    ending = ".plan.json" if commits else ".again.plan.json"
    return Path(name_of(topic, group, ending, NAME_CHARACTERS))


def parse_place(text: str) -> PlanPlace:
    """Parse a path, which may begin with ``file://``, or the URI of an object or a topic.

    Raises UsageError for a path that names no file, such as ``.`` or an empty text, and for a topic
    or a name in it that can't be one.
    """
    is_file = text.startswith("file://")
    if is_in_topic(text) and not all(map(_NAME.fullmatch, _parts_in_topic(text))):
        raise UsageError(
            f"{text!r} names no plan in a topic",
            hint="Write it like kafka://TOPIC/NAME, without brokers: -b or --client-config names"
            " them.",
        )
    if "://" in text and not is_file:
        return text
    path = Path(unquote(urlsplit(text).path) if is_file else text)
    if not path.name:
        raise UsageError(
            f"{text!r} is not the name of a file",
            hint="Name the plan, such as TOPIC.GROUP.plan.json.",
        )
    return path


def is_in_topic(place: PlanPlace) -> TypeGuard[str]:
    """Return whether a plan is in a topic."""
    return isinstance(place, str) and place.startswith(_IN_TOPIC)


def _parts_in_topic(uri: str) -> list[str]:
    return uri.removeprefix(_IN_TOPIC).split("/", 1)


def topic_and_name(uri: str) -> tuple[str, str]:
    """Return the topic of a plan, and the plan's name in it. Raises UsageError without a name."""
    topic, *name = _parts_in_topic(uri)
    if not name:
        raise UsageError(
            f"{uri} names a topic, but no plan in it", hint=f"Name the plan: {uri}/TOPIC.GROUP"
        )
    return topic, name[0]


def place_for(
    place: PlanPlace | None, topic: str, group: str, *, commits: bool = True
) -> PlanPlace:
    """Return the place of the plan of a new drain, whose name may be left to drainer."""
    if place is None:
        return default_path(topic, group, commits=commits)
    if not is_in_topic(place) or len(_parts_in_topic(place)) > 1:
        return place
    return f"{place}/{name_of(topic, group, '' if commits else '.again', NAME_CHARACTERS)}"


def absolute(place: PlanPlace) -> PlanPlace:
    return place.absolute() if isinstance(place, Path) else place


# The names that obstore has for the schemes of URIs.
STORES = {
    **{"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"},
    **{"az": "az", "abfs": "abfs", "abfss": "abfss"},
}
_REGION_NAMES = ("region", "aws_region", "default_region", "aws_default_region")
# No dot is allowed, because the region is a part of the host's name: s3.REGION.amazonaws.com.
_REGION = re.compile(r"[a-z0-9-]+")


def is_folder(uri: str) -> bool:
    """Return whether a URI names a folder, and not an object store. Raises UsageError."""
    return "://" not in uri or split_uri(uri).scheme == "file"


def uri_to_keep(uri: str) -> str:
    """Return the URI of a state as a plan keeps it: with the region, but with no other option.

    Raises UsageError if the URI can't be understood.
    """
    return uri if is_folder(uri) else _with_options(uri, {})


def uri_to_open(uri: str, named: Iterable[str]) -> str | None:
    """Return the URI of a state that a plan names, with the options that a person gave.

    ``named`` are URIs that a person gave. The options are those of the first one in the same
    bucket. Returns None if none of them is in the same bucket. Raises UsageError if a URI can't be
    understood.
    """
    if is_folder(uri):
        return uri
    for each in named:
        if _bucket(each) == _bucket(uri):
            return _with_options(uri, dict(parse_qsl(split_uri(each).query)))
    return None


def _with_options(uri: str, options: dict[str, str]) -> str:
    parts = split_uri(uri)
    region = {
        name: value
        for name, value in parse_qsl(parts.query)
        if name in _REGION_NAMES and _REGION.fullmatch(value)
    }
    query = urlencode(region | options, safe=":/")
    return parts._replace(query=query, fragment="").geturl()


def split_uri(uri: str) -> SplitResult:
    """Split a URI into its parts. Raises UsageError if it can't be understood."""
    try:
        return urlsplit(uri)
    except ValueError:
        raise UsageError(
            "the place of the state is not a valid URI", hint="Write it like s3://bucket/path."
        ) from None


def _bucket(uri: str) -> tuple[str, str]:
    parts = split_uri(uri)
    return STORES.get(parts.scheme, parts.scheme), parts.netloc
