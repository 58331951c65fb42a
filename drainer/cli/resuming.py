"""What a resume needs that is not in the plan, as it was given for this run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from drainer.core.plan import OffsetPlan
from drainer.engine.status import Resuming
from drainer.kafka.settings import is_secret
from drainer.spark.settings import hides

# Of the options of run, redrive and resume: how to connect, what the handler is told, and how to
# drain. What is drained, by which handler, rules and policy, is in the plan.
_NEEDED = (
    "bootstrap_server",
    "client_config",
    "client_property",
    "set_",
    "concurrency",
    "buffer",
    "plan_interval",
    "grace",
    "engine",
    "master",
    "spark_conf",
    "wave",
    "state",
    "tasks",
    "archive",
)
_PAIRS = {"client_property", "set_", "spark_conf"}  # NAME=VALUE, and the value may be a secret
_LOGIN = re.compile(r":\S*@")
# Names that handlers' authors choose; too many are named without their value rather than too few.
_MAY_BE_SECRET = re.compile(
    r".key$|auth|bearer|cookie|cred|dsn|jwt|pass|private|pwd|^pw$|signature|token", re.IGNORECASE
)
# No word that a person reads: long, with digits among letters.
_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+=_~-]{20,}")


def resuming_with(context: typer.Context, plan: OffsetPlan) -> Resuming:
    """The options that a resume of this run needs. What a variable or a profile gave is taken as
    what was typed is: the next shell may have neither."""
    shown: list[str] = []
    hidden: list[str] = []
    options = {option.name: option for option in context.command.params}
    for name in _NEEDED:
        option, value = options.get(name), context.params.get(name)
        source = context.get_parameter_source(name)
        if option is None or value is None or source is None or source.name == "DEFAULT":
            continue
        if _in_plan(name, value, plan):
            continue
        word = option.opts[0]
        for text in _texts(value):
            pair, _, of_pair = text.partition("=")
            if name in _PAIRS and _may_be_secret(name, pair, of_pair):
                hidden.append(f"{word} {shlex.quote(pair)}=…")
            else:
                shown += [word, text]
    return Resuming(tuple(shown), tuple(hidden))


def _may_be_secret(option: str, name: str, value: str) -> bool:
    if is_secret(name) or hides(name, value) or _LOGIN.search(value):
        return True
    chosen = option == "set_"
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
