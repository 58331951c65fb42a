"""The object that each command prints with ``-o json``, from which its JSON Schema is made.

Most fields come from the records in the code. A command whose object has a field of its own names
it below, in ``OUTPUTS``. ``python docs/generate.py`` writes docs/reference/output.schema.json, and
every test that runs a command with ``-o json`` validates what it prints (tests/command/process.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from drainer.certify.split import SplitReport
from drainer.cli.steering import _OF_STATUS
from drainer.control.wire import About
from drainer.core.batches import Batching
from drainer.engine.preview import _OF_TERMS, Preview
from drainer.insight.inspection import _FIGURES, Inspection, PartitionInspection
from drainer.lags.survey import Lags
from drainer.letters.overview import _COUNTED, _SHOWN_OTHERWISE, Overview
from drainer.limits.search.boundary import MeasuredLimits
from drainer.model.account import Account, Event
from drainer.model.finding import Finding
from drainer.model.rate_cap import Cap
from drainer.model.status import _OF_THE_END, SECTIONS, Summary
from drainer.model.terms import Terms
from drainer.policy.dead_letter import Provenance

Fields = dict[str, Any]
ANY: Any = Any
NAMES = {"Batching": Batching}  # Records name these types, whose modules they don't import.

# The first fields of every object.
COMMON: Fields = {
    "status": str,
    "exit_code": int,
    "hint": str | None,
    "next": str | None,
}
ENDED_SO = (
    "The status is a word, exit_code that of the process, hint the way out, and next a command."
)


def of(kind: type, names: Iterable[str] | None = None, without: Iterable[str] = ()) -> Fields:
    """The types of a record's fields, or of some of its fields and properties."""
    hints = get_type_hints(kind, localns=NAMES, include_extras=True)
    if names is None:
        names = [each.name for each in fields(kind)]
    found = {}
    for name in names:
        if name not in without:
            made: Any = getattr(kind, name, None)
            is_property = isinstance(made, property) and name not in hints
            found[name] = get_type_hints(made.fget)["return"] if is_property else hints[name]
    return found


STATUS: Fields = {
    "topic": str,
    "group": str,
    "plan": str,
    "engine_status": Mapping[str, Any] | None,
}
for _section in SECTIONS.values():
    STATUS |= of(_section)
SUMMARY: Fields = {
    **STATUS,
    **of(Summary, _OF_THE_END),
    "parked_first": list[dict[str, str]],
    "hand_over": Mapping[str, Any] | None,
    "resume_needs": tuple[str, ...],
    "error": str | None,
}
PREVIEW: Fields = {
    **of(Terms, _OF_TERMS),
    **of(Preview, without=("plan", "plan_path", "batching", "concurrency")),
    "partitions": Mapping[int, Mapping[str, int | None]],
    "bundling": Mapping[str, Any] | None,
    "concurrency": int | str,
    "plan": str,
    "offsets": int,
    "estimate": NotRequired[Mapping[str, Any] | None],
}
PLAN: Fields = {
    "format": str,
    **of(Terms),
    **of(Account),
    "claims": Mapping[str, Mapping[int, Mapping[str, Any]]],
    "partitions": Mapping[int, Mapping[str, Any]],
    "last_run": str,
    "last_end": Event | None,
}
DRAIN: Fields = {
    **of(About),
    **{name: STATUS[name] | None for name in _OF_STATUS},
    "pid": int | None,
    "state": str,
    "done": float | None,
    "resume": str | None,
    "ended": Event | None,
    "age_s": float | None,
}
LETTER: Fields = {
    "partition": int,
    "offset": int,
    "id": str,
    **of(Provenance, without=_SHOWN_OTHERWISE),
    "sub_keys": list[str],
    "why_not_redriven": str | None,
}
LIMITS: Fields = {"drainer_limits": int, **of(MeasuredLimits)}
CHECKED = {"text": str, "ok": bool, "error": str | None}


_MADE: dict[Any, Any] = {}


def written(kind: Any) -> Any:
    """The type as JSON has it: records have all of their fields, and some types are texts."""
    if kind in _MADE:
        return _MADE[kind]
    if isinstance(kind, type) and hasattr(kind, "written"):
        return kind.written
    if isinstance(kind, type) and is_dataclass(kind):
        names = [each.__name__ for each in _MADE.values()]
        name = kind.__name__ if kind.__name__ not in names else f"{kind.__name__}{len(_MADE)}"
        _MADE[kind] = record(name, of(kind))
        return _MADE[kind]
    return _generic(kind, get_origin(kind), get_args(kind))


def _generic(kind: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    if origin in (None, Literal):
        return kind
    if origin is Annotated:
        return Annotated[(written(parts[0]), *parts[1:])]
    inner = tuple(each if each is ... else written(each) for each in parts)
    if origin is NotRequired:
        return NotRequired[inner[0]]
    return (Union if origin is UnionType else origin)[inner]


def record(name: str, found: Fields) -> Any:
    """A type with these fields."""
    return TypedDict(name, {each: written(kind) for each, kind in found.items()})  # type: ignore[operator]


ERROR: Fields = {"error": str, "plan": NotRequired[str]}

# The objects of each command, apart from the first fields and the error.
OUTPUTS: dict[str, list[Fields]] = {
    **{command: [SUMMARY, PREVIEW] for command in ("run", "resume", "redrive")},
    "lag": [of(Lags)],
    "inspect": [
        {
            **of(Inspection, without=("rule_status",)),
            **of(Inspection, _FIGURES),
            "arrivals_over_s": int,
            "undecided": Mapping[str, int],
            "why": Mapping[str, str],
            "partitions": Mapping[int, PartitionInspection],
            "cap": NotRequired[Cap | None],
        }
    ],
    "estimate": [{"topic": str, "group": str, "estimate": Mapping[str, Any]}],
    "probe": [{"findings": list[Finding]}],
    "certify": [
        {
            **of(SplitReport),
            "handler": str,
            "topic": str,
            "topic_id": str,
            "partitions": list[int],
            "seed": int,
        }
    ],
    "limits": [{"out": str, "limits": record("Measured", LIMITS)}],
    "ps": [{"drains": list[record("Drain", DRAIN)]}],  # type: ignore[misc]
    "watch": [{"ended": Mapping[str, Any]}],
    "stop": [{"ended": Mapping[str, Any]}],
    **{command: [{"told": list[str]}] for command in ("set", "pause", "unpause")},
    "plan show": [PLAN],
    "plan history": [{"plan": str, "drain_id": str, "history": list[Event]}],
    "plan verify": [
        {"checks": list[record("Checked", CHECKED)], "warnings": list[str]}  # type: ignore[misc]
    ],
    "plan undo": [
        {
            "group": str,
            "partitions": Mapping[int, Mapping[str, int | None]],
        }
    ],
    "dead list": [
        {
            "dead_letter_topic": str,
            **of(Overview, _COUNTED),
            "outstanding_sub_messages": int,
            "left_out": Mapping[str, int],
            **dict.fromkeys(("by_error", "by_reason", "by_sub_key"), Mapping[str, int]),
            "newest": list[record("ListedLetter", {**LETTER, "redriven": bool})],  # type: ignore[misc]
            "originals_kept": Mapping[str, str | None],
            "group": str,
            "running": Mapping[str, Any] | None,
        }
    ],
    "dead show": [
        {**LETTER, "payload": ANY, "message": Mapping[str, Any], "undecoded": str | None}
    ],
    "job": [{"manifests": str}],
    "sandbox up": [{"bootstrap_servers": str, "folder": str, "registry": str | None}],
    "spark warm": [{"archive": str}],
}


def schema(*, closed: bool = False) -> dict[str, Any]:
    """The schema of all commands. Each is a definition, such as ``#/$defs/plan show``.

    Another drainer may add fields. With ``closed``, there must be no others, which only holds for
    this one.
    """
    kinds, named = [record("error", {**COMMON, **ERROR})], dict[str, list[str]]()
    for command, objects in OUTPUTS.items():
        name = command.title().replace(" ", "")
        for number, found in enumerate(objects):
            title = f"{name}{number or ''}"
            kinds.append(record(title, {**COMMON, **found}))
            named.setdefault(command, []).append(title)
    _, made = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for each in made.values():
        if closed and "properties" in each:
            each["additionalProperties"] = False
    defs = {
        command: {"anyOf": [{"$ref": f"#/$defs/{each}"} for each in (*titles, "error")]}
        for command, titles in named.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The objects that commands of drainer print with -o json",
        "description": ENDED_SO,
        "anyOf": [{"$ref": f"#/$defs/{command}"} for command in named],
        "$defs": defs | made,
    }
