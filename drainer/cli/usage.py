"""Usage errors: what typer rejects of the words that were typed, as drainer's own errors."""

from __future__ import annotations

import re
from typing import Any

import typer

from drainer.cli.parameter import declared_by, is_given, source_of
from drainer.errors import UsageError
from drainer.model.option import Option

_CLUSTER = ("bootstrap_server", "client_config", "client_property")  # one of them names it


def usage_error(error: typer.TyperException) -> UsageError:
    """The error that replaces one of typer's; it names at once all that is missing."""
    return _missing(error) if type(error).__name__ == "MissingParameter" else _wrong(error)


def _wrong(error: Any) -> UsageError:
    context = error.ctx
    param: Any = getattr(error, "param", None)
    text, _, near = error.message.rstrip(".?").partition(". Did you mean ")
    text = re.sub(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected: \1", text)
    text = text.removeprefix("Value error, ")
    text = f"{text[:1].lower()}{text[1:]}"
    option = declared_by(context.command).get(param.name) if param is not None else None
    if option is not None:
        where = source_of(context, param.name, option)
        text = f"{' '.join(filter(None, (option.word, where)))}: {text}"
    near = near or " or ".join(getattr(error, "possibilities", None) or ())
    hint = f"Did you mean {near}?" if near else f"See `{context.command_path} --help`."
    root = context.find_root()
    named = getattr(error, "option_name", None)
    if context is not root and any(named in each.opts for each in root.command.params):
        hint = f"Put it before the command: `{root.command_path} {named} …`."
    return UsageError(text, hint=hint)


def _missing(error: Any) -> UsageError:
    context, declared = error.ctx, declared_by(error.ctx.command)
    required = {name: each for name, each in declared.items() if each.default is ...}
    missing = [each for name, each in required.items() if not is_given(context, name, each)]
    # Where only a plan is required, it names the cluster.
    if any(not each.is_argument for each in required.values()):
        cluster = {name: declared[name] for name in _CLUSTER if name in declared}
        if cluster and not any(is_given(context, name, each) for name, each in cluster.items()):
            missing.append(next(iter(cluster.values())))
    typed = " ".join(
        each.word if each.is_argument else f"{_word(each)} {each.typed_as}" for each in missing
    )
    return UsageError(
        f"missing {', '.join(map(_word, missing))}",
        hint=f"Add {typed}: see `{context.command_path} --help`.",
    )


def _word(option: Option) -> str:
    return option.short or option.word
