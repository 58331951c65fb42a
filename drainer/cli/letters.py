"""The options that say which dead letters are meant, for `drainer dead` and `drainer redrive`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from drainer.policy.dead_letter import LetterFilter

_WHICH = "Which dead letters"

DeadLetterTopic = Annotated[
    str,
    typer.Option(
        "--dead-letter-topic",
        envvar="DRAINER_DEAD_LETTER_TOPIC",
        help="Topic that holds the dead letters; that of a drain is TOPIC.GROUP.dead by default.",
        rich_help_panel=_WHICH,
    ),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option(
        "--reason",
        envvar="DRAINER_REASON",
        help="Only those given up for this reason; repeat for several.",
        rich_help_panel=_WHICH,
    ),
]
SubKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--sub-key",
        envvar="DRAINER_SUB_KEY",
        help="Only those of this sub-key, as the list tells it; repeat for several.",
        rich_help_panel=_WHICH,
    ),
]
ErrorTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--error",
        envvar="DRAINER_ERROR",
        metavar="TEXT",
        help="Only those with this text in `Type: text` of their error, in upper or lower case;"
        " repeat for several.",
        rich_help_panel=_WHICH,
    ),
]
FromTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--from-topic",
        envvar="DRAINER_FROM_TOPIC",
        metavar="TOPIC",
        help="Only those of messages of this topic; repeat for several.",
        rich_help_panel=_WHICH,
    ),
]
FromGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--from-group",
        envvar="DRAINER_FROM_GROUP",
        metavar="GROUP",
        help="Only those that a drain of this group gave up; repeat for several.",
        rich_help_panel=_WHICH,
    ),
]
FromHandlers = Annotated[
    list[str] | None,
    typer.Option(
        "--from-handler",
        envvar="DRAINER_FROM_HANDLER",
        metavar="REFERENCE",
        help="Only those that this handler gave up, as the list prints it; repeat for several.",
        rich_help_panel=_WHICH,
    ),
]
RedriveGroup = Annotated[
    str | None,
    typer.Option(
        "--group",
        envvar="DRAINER_REDRIVE_GROUP",
        help="Consumer group that keeps track of what was redriven. Default:"
        " drainer.redrive.TOPIC.",
    ),
]
RedrivePlan = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        envvar="DRAINER_REDRIVE_PLAN",
        help="The redrive's offset plan; the next redrive goes on from it. Default:"
        " TOPIC.redrive.plan.json in this folder.",
    ),
]


def letter_filter(
    *,
    reason: Sequence[str] | None,
    sub_key: Sequence[str] | None,
    error: Sequence[str] | None,
    from_topic: Sequence[str] | None,
    from_group: Sequence[str] | None,
    from_handler: Sequence[str] | None,
) -> LetterFilter:
    """What the options say."""
    return LetterFilter(
        reasons=tuple(reason or ()),
        sub_keys=tuple(sub_key or ()),
        errors=tuple(error or ()),
        topics=tuple(from_topic or ()),
        groups=tuple(from_group or ()),
        handlers=tuple(from_handler or ()),
    )
