"""The options that say which dead letters are meant, for `drainer dead` and `drainer redrive`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from drainer.cli.groups import option, options
from drainer.model.redrive import LetterFilter

_WHICH = "Which dead letters"


@options(_WHICH)
class LetterTopic:
    """Where dead letters are."""

    dead_letter_topic: str = option(
        basic=True,
        metavar="TOPIC",
        help="Topic of the letters. A drain's default is TOPIC.GROUP.dead.",
    )


@options(_WHICH)
class Letters:
    """Which of them are meant; the fields are those of LetterFilter."""

    reasons: tuple[str, ...] = option(
        "--letter-reason",
        basic=True,
        default=(),
        many=str,
        metavar="REASON",
        help="Only letters with this reason; repeatable.",
    )
    sub_keys: tuple[str, ...] = option(
        "--sub-key",
        basic=True,
        default=(),
        many=str,
        metavar="KEY",
        help="Only letters of this sub-key, as the list prints it; repeatable.",
    )
    errors: tuple[str, ...] = option(
        "--error",
        default=(),
        many=str,
        metavar="TEXT",
        help="Only letters with this text in their error; repeatable.",
    )
    sources: tuple[str, ...] = option(
        "--source",
        default=(),
        many=str,
        metavar="TEXT",
        help="Only letters from this topic, group or handler; repeatable.",
    )

    def filter(self) -> LetterFilter:
        return LetterFilter(**{each.name: getattr(self, each.name) for each in fields(self)})


@options()
class Redrives:
    """What keeps track of what was redriven."""

    group: str | None = option(
        default=None,
        envvar="DRAINER_REDRIVE_GROUP",
        metavar="NAME",
        help="Group that tracks redrives. Default: drainer.redrive.TOPIC.",
    )
    plan: Path | None = option(
        default=None,
        envvar="DRAINER_REDRIVE_PLAN",
        metavar="FILE",
        help="The redrive's offset plan. Default: TOPIC.redrive.plan.json in this folder.",
    )
