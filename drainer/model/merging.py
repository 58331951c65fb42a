"""Merging the same section of the statuses of several parts of a drain into one section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from typing import Any, TypeVar

Section = TypeVar("Section", bound=Any)


def merged(how: Callable[[list[Any]], Any], default: Any = 0, *, present: bool = False) -> Any:
    """Declare a field by how ``merge`` makes its value from those of several parts of a drain.

    Args:
        how: makes one value of the values of all parts. It is called with an empty list if there
            are no parts.
        default: the value of the field, or a type that makes it.
        present: whether the field is a state, so that parts that are over no longer count.
    """
    metadata = {"how": how, "present": present}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def merge(base: Section, now: Sequence[Section], past: Sequence[Section] = ()) -> Section:
    """Merge a section of the status of several parts of a drain: its passes, or tasks of Spark.

    Args:
        base: has the values of the fields that are not merged.
        now: the section of each part that is at work.
        past: the section of each part that is over.
    """
    found = {}
    for each in fields(base):
        if how := each.metadata.get("how"):
            parts = now if each.metadata["present"] else (*past, *now)
            found[each.name] = how([getattr(part, each.name) for part in parts])
    merged_section: Section = replace(base, **found)
    return merged_section
