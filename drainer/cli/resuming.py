"""What a resume needs that is not in the plan, as it was given for this run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from drainer.cli.groups import options_of, source
from drainer.core.plan import OffsetPlan
from drainer.engine.status import Resuming
from drainer.kafka.settings import hides, is_secret

_LOGIN = re.compile(r":\S*@")
# Names that handlers' authors choose; too many are named without their value rather than too few.
_MAY_BE_SECRET = re.compile(
    r".key$|auth|bearer|cookie|cred|dsn|jwt|pass|private|pwd|^pw$|signature|token", re.IGNORECASE
)
# No word that a person reads: long, with digits among letters.
_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+=_~-]{20,}")


def resuming_with(context: typer.Context, plan: OffsetPlan) -> Resuming:
    """The options that a resume of this run needs: how to connect, what the handler is told, and
    how to drain. What is drained, by which handler, rules and policy, is in the plan.

    What a variable or a profile gave is taken as what was typed is: the next shell may have
    neither.
    """
    shown: list[str] = []
    hidden: list[str] = []
    for name, declared in options_of(context).items():
        value = context.params.get(name)
        if not declared.resumes or value is None or source(context, name) in (None, "DEFAULT"):
            continue
        if _in_plan(name, value, plan):
            continue
        for text in _texts(value):
            pair, _, of_pair = text.partition("=")
            if declared.pairs and _may_be_secret(declared.word, pair, of_pair):
                hidden.append(f"{declared.word} {shlex.quote(pair)}=…")
            else:
                shown += [declared.word, text]
    return Resuming(tuple(shown), tuple(hidden))


def _may_be_secret(word: str, name: str, value: str) -> bool:
    if is_secret(name) or hides(name, value) or _LOGIN.search(value):
        return True
    chosen = word == "--set"
    return chosen and bool(_MAY_BE_SECRET.search(name) or _RANDOM.fullmatch(value))


def _texts(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list | tuple) else [value]:
        yield str(each.value if isinstance(each, Enum) else each)


def _in_plan(name: str, value: Any, plan: OffsetPlan) -> bool:
    match name:
        case "bootstrap_server":
            return bool(value == plan.bootstrap_servers)
        case "client_config":
            return str(Path(value).absolute()) == plan.client_config
    return False
