"""Usage errors: drainer's own errors for words that typer rejects."""

from __future__ import annotations

import re
from typing import Any

import typer

from drainer.cli.parameter import declared_by, is_given, meant, value_of
from drainer.errors import UsageError
from drainer.model.option import Option

_CLUSTER = ("bootstrap_server", "client_config", "client_property")  # One of them is needed.


def usage_error(error: typer.TyperException) -> UsageError:
    """Return the error that replaces one of typer's. It names all that is missing at once."""
    return _missing(error) if type(error).__name__ == "MissingParameter" else _wrong(error)


def _wrong(error: Any) -> UsageError:
    context = error.ctx
    param: Any = getattr(error, "param", None)
    text, _, near = error.message.rstrip(".?").partition(". Did you mean ")
    text = re.sub(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected: \1", text)
    text = text.removeprefix("Value error, ")
    text = f"{text[:1].lower()}{text[1:]}"
    declared = declared_by(context.command)
    if param is not None and (option := declared.get(param.name)) is not None:
        place, _ = value_of(context, option)
        text = f"{' '.join(filter(None, (option.word, place)))}: {text}"
    named = getattr(error, "option_name", "")
    is_unknown = type(error).__name__ == "NoSuchOption"
    if is_unknown and (option := meant(named.strip("-"), declared.values())):
        near = option.word
    hint = f"Did you mean {near}?" if near else f"See `{context.command_path} --help`."
    root = context.find_root()
    if context is not root and any(named in each.opts for each in root.command.params):
        hint = f"Put it before the command: `{root.command_path} {named} …`."
    return UsageError(text, hint=hint)


def _missing(error: Any) -> UsageError:
    context, declared = error.ctx, declared_by(error.ctx.command)
    required = [each for each in declared.values() if each.default is ...]
    missing = [each for each in required if not is_given(context, each)]
    # A command that requires nothing but a plan finds the cluster in the plan.
    if any(not each.is_argument for each in required):
        cluster = [declared[name] for name in _CLUSTER if name in declared]
        if cluster and not any(is_given(context, each) for each in cluster):
            missing.append(cluster[0])
    typed = " ".join(
        each.word if each.is_argument else f"{_word(each)} {each.typed_as}" for each in missing
    )
    return UsageError(
        f"missing {', '.join(map(_word, missing))}",
        hint=f"Add {typed}: see `{context.command_path} --help`.",
    )


def _word(option: Option) -> str:
    return option.short or option.word
