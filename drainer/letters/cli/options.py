"""The options that say which dead letters are meant, for `drainer dead` and `drainer redrive`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from drainer.model.option import option
from drainer.model.redrive import LetterFilter

_which = partial(option, panel="Which dead letters")


@dataclass(frozen=True, kw_only=True)
class LetterTopicOptions:
    """Where dead letters are."""

    dead_letter_topic: str = _which(
        "Topic of the letters. A drain's default is TOPIC.GROUP.dead.",
        basic=True,
        metavar="TOPIC",
        proposes="topic",
    )


@dataclass(frozen=True, kw_only=True)
class LetterOptions:
    """Which of them are meant; the fields are those of LetterFilter."""

    reasons: tuple[str, ...] = _which(
        "Only letters with this reason; repeatable.",
        (),
        name="--letter-reason",
        basic=True,
        metavar="REASON",
    )
    sub_keys: tuple[str, ...] = _which(
        "Only letters of this sub-key, as the list prints it; repeatable.",
        (),
        name="--sub-key",
        basic=True,
        metavar="KEY",
    )
    errors: tuple[str, ...] = _which(
        "Only letters whose error contains this text; repeatable.", (), name="--error"
    )
    sources: tuple[str, ...] = _which(
        "Only letters from this topic, group or handler; repeatable.", (), name="--source"
    )

    def filter(self) -> LetterFilter:
        return LetterFilter(**{each.name: getattr(self, each.name) for each in fields(self)})


@dataclass(frozen=True, kw_only=True)
class RedriveOptions:
    """What keeps track of what was redriven."""

    group: str | None = option(
        "Group that tracks redrives.",
        None,
        unset="drainer.redrive.TOPIC",
        envvar="DRAINER_REDRIVE_GROUP",
        metavar="NAME",
        proposes="group",
    )
    plan: Path | None = option(
        "The redrive's offset plan.",
        None,
        unset="TOPIC.redrive.plan.json in this folder",
        envvar="DRAINER_REDRIVE_PLAN",
        metavar="FILE",
    )
