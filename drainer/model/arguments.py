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
    "topic": "topic",
    "group": "group",
    "handler": "handler",
    "plan": "the argument plan",
    "until": "until",
    "first": "first",
    "latency": "latency",
    "full": "messages=None",
    "key": "payloads.keys",
    "from": "from_",
    "partition": "partitions",
    "client-config": "client",
    "accept-gap": "accept_gap=True",
    "no-commit": "commit=False",
    "or-resume": "or_resume=True",
    "-b": "bootstrap.servers",
    "-X": "client",
}
# An option; or a whole command, or the note of what it lacks, both of which stay as they are.
_OPTION = re.compile(
    r"drainer (?:resume|run|plan|redrive|dead|estimate|inspect|set) .*|`[^`]*`|\badd .* as before"
    r"|(?<![\w/.-])(?:--(?:tune )?([a-z][a-z-]*)|(-[bX])(?= ))"
)


def in_python(text: str, own: Mapping[str, str] | None = None) -> str:
    """Replace the options that a text names by the arguments of the functions for programs.

    For the text of an error, ``own`` has further arguments, which only the function that raised it
    has, by the names of their options without dashes. Every option in such a text is one of
    drainer's, so one without an argument of its own just loses its dashes. Without ``own``, the
    text may quote the options of another program, so any that drainer does not know stays as it is.
    """
    known = {**_ARGUMENTS, **(own or {})}

    def argument(at: re.Match[str]) -> str:
        named = at[1] or at[2]
        return known.get(named, at[0] if own is None else named) if named else at[0]

    return _OPTION.sub(argument, text)
