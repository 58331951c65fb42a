"""Places of plans: the path of a file, or the URI of an object."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from drainer.errors import UsageError
from drainer.model.naming import name_of

PlanPlace: TypeAlias = Path | str  # a file, or the URI of an object

PLANS = "*.plan.json"
NAME_CHARACTERS = 200  # file systems allow 255


def default_path(topic: str, group: str) -> Path:
    """The default place of a plan: this folder, by a name that leaves room for those beside it."""
    return Path(name_of(topic, group, ".plan.json", NAME_CHARACTERS))


def parse_place(text: str) -> PlanPlace:
    """A path, ``file://`` before it or not, or the URI of an object.

    Raises UsageError when a path does not name a file, as ``.`` and an empty text don't.
    """
    is_file = text.startswith("file://")
    if "://" in text and not is_file:
        return text
    path = Path(unquote(urlsplit(text).path) if is_file else text)
    if not path.name:
        raise UsageError(
            f"{text!r} is not the name of a file",
            hint="Name the plan, such as TOPIC.GROUP.plan.json.",
        )
    return path


def absolute(place: PlanPlace) -> PlanPlace:
    return place.absolute() if isinstance(place, Path) else place
