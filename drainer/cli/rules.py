"""The options of the rules, which ``run``, ``resume`` and ``redrive`` share.

As with the failure policy there is no default here: one that goes on begins from its plan.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from drainer.errors import UsageError
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.settings import OverLimit, RuleSettings, SkipRule

_PANEL = "What is left out on purpose (kept in the plan)"


def _option(name: str, metavar: str | None, help_: str, **more: Any) -> Any:
    # Of those that repeat a variable would be cut at each space, which expressions have.
    repeats = name in ("--skip", "--skip-key")
    return typer.Option(
        name,
        envvar=None if repeats else f"DRAINER_{name[2:].upper().replace('-', '_')}",
        metavar=metavar,
        help=help_,
        rich_help_panel=_PANEL,
        show_default=False,
        **more,
    )


SkipKeys = Annotated[
    list[str] | None,
    _option(
        "--skip-key",
        "KEY",
        "Skip all sub-messages of this sub-key: text, bytes as text, others as Python writes them."
        " Repeatable.",
    ),
]
Skips = Annotated[
    list[str] | None,
    _option(
        "--skip",
        "EXPRESSION",
        "Skip what this is true of, as in \"payload.kind == 'set_email'\". It may name key,"
        " payload, message, index. What it can't be told of is not skipped. Repeatable.",
    ),
]
RulesFile = Annotated[
    Path | None,
    _option(
        "--rules",
        "FILE",
        "A TOML file of rules with names: [[skip]] with name, when and keys; limit_per_key,"
        " over_limit.",
    ),
]
LimitPerKey = Annotated[
    int | None,
    _option(
        "--limit-per-key",
        "N",
        "Handle the first N sub-messages of each sub-key, and skip the others. Exact for 100,000"
        " sub-keys; with more, some more than N may be handled.",
        min=1,
    ),
]
OverLimitOption = Annotated[
    OverLimit | None,
    _option(
        "--over-limit",
        None,
        "What becomes of those others: skipped, or a dead letter, which can be redriven. Default:"
        " skip.",
    ),
]
NoRules = Annotated[
    bool,
    typer.Option(
        "--no-rules",
        envvar="DRAINER_NO_RULES",
        help="Go on without the rules that the plan has. What they skipped stays skipped.",
        rich_help_panel=_PANEL,
    ),
]


def rule_settings(
    known: RuleSettings,
    *,
    skip_key: Sequence[str] | None,
    skip: Sequence[str] | None,
    rules: Path | None,
    limit_per_key: int | None,
    over_limit: OverLimit | None,
) -> RuleSettings:
    """What is known, with what was said on the command line over it.

    Rules that skip are taken as a whole: any of them said here takes the place of all those known.
    Raises UsageError when they can't be understood.
    """
    said = RuleSettings() if rules is None else _read(rules)
    try:
        found = replace(
            known,
            skip=(*said.skip, *_typed(skip_key or (), skip or ())) or known.skip,
            limit_per_key=limit_per_key or said.limit_per_key or known.limit_per_key,
            over_limit=over_limit
            or (said.over_limit if said.limit_per_key is not None else known.over_limit),
        )
    except ValueError as error:
        raise UsageError(str(error), hint="give each rule a name of its own") from None
    if over_limit is not None and found.limit_per_key is None:
        raise UsageError("--over-limit is of no use without --limit-per-key", hint="say both")
    RuleFilter(found)
    return found


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
