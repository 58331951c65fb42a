"""The options that texts for people name, as arguments of the functions for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields

from drainer.model.option import option_name, options_of
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.terms import PayloadSettings

# The arguments of the functions for programs, by the labels of the options of the command.
_ARGUMENTS = {
    **{option_name(each.name): f"payloads.{each.name}" for each in fields(PayloadSettings)},
    **{each.label: f"failures.{name}" for name, each in options_of(FailureSettings).items()},
    **{each.label: name for name, each in options_of(LocalSettings).items()},
    **{name: name for name in ("topic", "group", "handler", "plan", "until", "first")},
    **{"latency": "latency", "full": "messages=None"},
    **{"key": "payloads.keys", "from": "from_", "partition": "partitions"},
    **{"client-config": "client", "accept-gap": "accept_gap=True"},
    **{"no-commit": "commit=False", "-b": "bootstrap.servers", "-X": "client"},
}
# A whole command, which stays as it is, or an option.
_OPTION = re.compile(
    r"drainer (?:resume|run|plan|redrive|dead|estimate|inspect|set) .*|`[^`]*`"
    r"|(?<![\w/.-])(?:--(?:tune )?([a-z][a-z-]*)|(-[bX])(?= ))"
)


def in_python(text: str, own: Mapping[str, str] | None = None) -> str:
    """Replace the options that a text names by the arguments of the functions for programs.

    ``own`` has the arguments of the function that raised an error, by the labels of their options.
    Without it, the text may quote somebody else's, so words that are no options of a drain stay.
    """
    known = {**_ARGUMENTS, **(own or {})}

    def argument(at: re.Match[str]) -> str:
        named = at[1] or at[2]
        return known.get(named, at[0] if own is None else named) if named else at[0]

    return _OPTION.sub(argument, text)
