"""The options of the rules, which ``run``, ``resume`` and ``redrive`` share.

As with the failure policy there is no default here: one that goes on begins from its plan.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

from drainer.cli.groups import option, options
from drainer.errors import UsageError
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.settings import OverLimit, RuleSettings, SkipRule

_PANEL = "What is left out on purpose (kept in the plan)"


@options(_PANEL)
class Rules:
    """What was said of sub-messages that are left out."""

    # Of those that repeat a variable would be cut at each space, which expressions have.
    skip_keys: tuple[str, ...] = option(
        "--skip-key",
        envvar=None,
        default=(),
        many=str,
        metavar="KEY",
        help="Skip all sub-messages of this sub-key: text, bytes as text, others as Python writes"
        " them. Repeatable.",
    )
    skips: tuple[str, ...] = option(
        "--skip",
        envvar=None,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help="Skip what this is true of, as in \"payload.kind == 'set_email'\". It may name key,"
        " payload, message, index. What it can't be told of is not skipped. Repeatable.",
    )
    rules: Path | None = option(
        "--rules",
        default=None,
        metavar="FILE",
        help="A TOML file of rules with names: [[skip]] with name, when and keys; limit_per_key,"
        " over_limit.",
    )
    limit_per_key: int | None = option(
        "--limit-per-key",
        default=None,
        metavar="N",
        min=1,
        help="Handle the first N sub-messages of each sub-key. Halts above 100,000 sub-keys.",
    )
    over_limit: OverLimit | None = option(
        "--over-limit",
        default=None,
        help="What becomes of those others: skipped, or a dead letter, which can be redriven."
        " Default: skip.",
    )

    def over(self, known: RuleSettings | None = None) -> RuleSettings:
        """What is known, with what was said over it.

        Rules that skip are taken as a whole: any of them said here takes the place of all those
        known. Raises UsageError when they can't be understood.
        """
        known = known or RuleSettings()
        said = RuleSettings() if self.rules is None else _read(self.rules)
        try:
            found = replace(
                known,
                skip=(*said.skip, *_typed(self.skip_keys, self.skips)) or known.skip,
                limit_per_key=self.limit_per_key or said.limit_per_key or known.limit_per_key,
                over_limit=self.over_limit
                or (said.over_limit if said.limit_per_key is not None else known.over_limit),
            )
        except ValueError as error:
            raise UsageError(str(error), hint="give each rule a name of its own") from None
        if self.over_limit is not None and found.limit_per_key is None:
            raise UsageError("--over-limit is of no use without --limit-per-key", hint="say both")
        RuleFilter(found)
        return found


NoRules: TypeAlias = Annotated[
    bool,
    option(
        "--no-rules",
        default=False,
        panel=_PANEL,
        help="Go on without the rules that the plan has. What they skipped stays skipped.",
    ),
]


def _typed(keys: Sequence[str], expressions: Sequence[str]) -> list[SkipRule]:
    return [
        *map(SkipRule.typed_key, dict.fromkeys(keys)),
        *map(SkipRule.typed, dict.fromkeys(expressions)),
    ]


def _read(path: Path) -> RuleSettings:
    try:
        return RuleSettings.from_table(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(
            f"the rules file {path} can't be read: {error}", hint="it is TOML; see docs/rules.md"
        ) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from None
