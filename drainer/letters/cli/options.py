"""Options of `drainer dead` and `drainer redrive` that select dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from drainer.cli.options import handler_option
from drainer.errors import UsageError
from drainer.letters.resend import HANDLER, REFERENCE
from drainer.model.option import PAIRS, option
from drainer.model.terms import BY_HANDLER, WHICH_LETTERS, PayloadSettings

_which = partial(option, panel=WHICH_LETTERS)


@dataclass(frozen=True, kw_only=True)
class LetterTopicOptions:
    """The topic of dead letters."""

    dead_letter_topic: str = _which(
        "Topic of the letters. A drain's default is TOPIC.GROUP.dead.",
        short="-t",
        basic=True,
        metavar="TOPIC",
        proposes="topic",
    )
    headers: Mapping[str, str] | None = _which(
        "Header of another tool's letters, such as topic=x-topic, or topic==orders; repeatable.",
        None,
        PAIRS,
        name="--letter-header",
        metavar="FIELD=NAME",
        pairs=True,
    )


@dataclass(frozen=True, kw_only=True)
class DestinationOptions:
    """The destination of letters, and of letters that fail again."""

    handler: str | None = handler_option("Handler that gets the letters.", None)
    to: str = _which(
        "Where letters go: handler, source (the topic of each), or a topic.",
        HANDLER,
        basic=True,
        metavar="WHERE",
    )
    parking_topic: str | None = _which(
        "Topic of letters that fail again.",
        None,
        unset="the letters' own topic",
        metavar="TOPIC",
        proposes="topic",
    )

    @property
    def topic(self) -> str | None:
        """The topic that letters go to, or ``source``; None for the handler."""
        return None if self.to == HANDLER else self.to

    def ensure_copies(self, payloads: PayloadSettings) -> None:
        """Ensure that letters that go to a topic are neither split nor decoded.

        Raises UsageError.
        """
        if self.topic is not None and payloads != BY_HANDLER:
            raise UsageError(
                f"--to {self.to} copies letters as they are",
                hint="Remove the options for payloads: --split, --key, --barrier, --unkeyed,"
                " --value-format and --tune key-format.",
            )

    @property
    def reference(self) -> str:
        """The reference of the handler.

        Raises UsageError if a handler is missing, or is given although letters go to a topic.
        """
        if self.topic is None and self.handler is None:
            raise UsageError(
                "redrive needs a handler",
                hint="Add --handler, or send letters to a topic with --to source or --to TOPIC.",
            )
        if self.topic is not None and self.handler is not None:
            raise UsageError(
                f"--to {self.to} sends letters past the handler", hint="Remove --handler, or --to."
            )
        return self.handler or REFERENCE


@dataclass(frozen=True, kw_only=True)
class RedriveOptions:
    """The group and the plan that keep track of redrives."""

    group: str | None = option(
        "Group that tracks redrives.",
        None,
        short="-g",
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
