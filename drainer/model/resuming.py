"""What a resume has to repeat of the options of the last run, and the command or call to resume."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from drainer.model.codec import JsonRecord
from drainer.model.option import Option, options_of
from drainer.model.settings import LocalSettings
from drainer.text.escape import command, encodable, is_printable

_HARMLESS = (
    *("--concurrency", "--deadline", "--engine", "--follow", "--metrics", "--report"),
    "--until-lag",
)
_HARMLESS_TUNE = ("buffer", "grace", "metrics-linger", "log-format")
_HERE = re.compile(r"local(\[.*\])?|yarn")  # Masters that lead to no other place.
# What these options name is in the terms, and a resume asks for it.
_ASKED_FOR = ("--handler", "--value-format", "--registry")
OPTIONS_MOST = 100
VALUE_LENGTH = 1_000
_Short = Annotated[str, Meta(max_length=VALUE_LENGTH)]
_LOCAL = re.compile(r"(?:.*<locals>\.|__main__:)(.+)")


def local_class(reference: str) -> str | None:
    """Return the class that a reference names if only the program that defined it has it.

    A notebook is such a program, too. Return None for a handler that any process can load.
    """
    found = _LOCAL.fullmatch(reference)
    names = found[1].split(".") if found else [""]
    is_name = all(each.isidentifier() and not iskeyword(each) for each in names)
    return ".".join(names) if is_name else None


def _call(function: str, *arguments: str, **named: Any) -> str:
    """Return a call in Python. ``arguments`` have its code, and ``named`` the values of others."""
    code = (*arguments, *(f"{name}={value!r}" for name, value in named.items()))
    return f"{function}({', '.join(code)})"


def _is_harmless(name: str, text: str) -> bool:
    """Return whether an option names no code, no secret and no place to connect to."""
    match name:
        case "--handler":
            return local_class(text) is not None  # The program that resumes the drain has it.
        case "--tune":
            return text.partition("=")[0] in _HARMLESS_TUNE
        case "--set":  # For the handler ``produce``, ``split`` names code.
            return "://" not in text and text.partition("=")[0] != "split"
        case "--master":
            return _HERE.fullmatch(text) is not None
    return name in _HARMLESS


@dataclass(frozen=True, slots=True)
class Resuming(JsonRecord):
    """The options that a resume needs and that the terms do not have.

    Attributes:
        options: options as they were given for this run, each followed by its value, which is
            "True" for --follow.
        needs: the names of options whose values must not be shown.
        engine, concurrency: those of this run, as a person types them; empty if nothing ran yet.
    """

    options: Annotated[tuple[_Short, ...], Meta(max_length=2 * OPTIONS_MOST)] = ()
    needs: Annotated[tuple[_Short, ...], Meta(max_length=2 * OPTIONS_MOST)] = ()
    engine: _Short = ""
    concurrency: _Short = ""

    def command(self, plan: str | Path, more: Sequence[str] = ()) -> str:
        """Return the command that resumes the drain, in a form that can be copied to a shell.

        If only a program has the handler, this is the call by which that program resumes the drain.
        """
        if (name := self._local_class) is None:
            words = (each[:1] if each[0] == "--follow" else each for each in self._pairs)
            return command("resume", plan, options=(*more, *chain.from_iterable(words)))
        settings, place = self._settings, repr(str(plan))
        if ("--engine", "spark") in self._pairs and not more:
            own = {each: settings[each] for each in ("concurrency", "options") if each in settings}
            return _call("drainer.spark.drain", "…", f"plan={place}", f"handler={name}", **own)
        arguments = [place, "client=…", f"handler={name}"]
        if settings:
            arguments.append(f"settings={_call('drainer.LocalSettings', **settings)}")
        if "--accept-gap" in more:
            arguments.append("accept_gap=True")
        return _call("drainer.resume", *arguments)

    @property
    def _settings(self) -> dict[str, Any]:
        """The options of this run as arguments of ``LocalSettings``, such as ``concurrency=5``."""
        found: dict[str, Any] = {}
        for name, option in options_of(LocalSettings).items():
            if option.pairs and (texts := self.given(option)):
                found[name] = dict(text.partition("=")[::2] for text in texts)
            elif option.is_flag and self.given(option):
                found[name] = True
            elif texts := self.given(option):
                found[name] = int(texts[-1]) if texts[-1].isdecimal() else texts[-1]
        return found

    def way(self, plan: str | Path) -> str:
        """Return a sentence with the command, where it works, and the options that it lacks."""
        return f"To resume it: `{self.command(plan)}`{self.lacking}"

    def note(self, why: str = "") -> str:
        """Return where the command works, and which options to add to it, with the text ``why``.

        The note is empty if the command works as it is, in any shell.
        """
        name = self._local_class
        place = f"in the program that defines {name}" if name else ""
        needs = self.needs if name is None else self._needs_of_call
        lacks = f"add {', '.join(needs)} as before{why}" if needs else ""
        return "; ".join(filter(None, (place, lacks)))

    @property
    def lacking(self) -> str:
        """The text of ``note`` in brackets, to stand behind the command; empty if it is empty."""
        return f" ({note})" if (note := self.note()) else ""

    @property
    def _needs_of_call(self) -> list[str]:
        """The ``needs`` for a call, with the handler's options as ``options={'url': …}``."""
        own = replace(self, options=()).handler_options
        names = ", ".join(f"{name!r}: …" for name in own)
        others = [each for each in self.needs if each not in own.values()]
        return [f"options={{{names}}}", *others] if own else others

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return [*zip(self.options[::2], self.options[1::2], strict=False)]

    @property
    def _local_class(self) -> str | None:
        return local_class(dict(self._pairs).get("--handler", ""))

    def given(self, option: Option) -> list[str]:
        """Return the values of an option in this run, as a person typed them."""
        typed = " ".join(option.typed(""))
        words = map(" ".join, self._pairs)
        return [each.removeprefix(typed) for each in words if each.startswith(typed)]

    @property
    def handler_options(self) -> dict[str, str]:
        """The handler's options of this run by name, as a person types them."""
        words = (*map(" ".join, self._pairs), *self.needs)
        given = [each for each in words if each.startswith("--set ")]
        return {each.removeprefix("--set ").partition("=")[0]: each for each in given}

    def to_keep(self, kept_urls: Collection[str] = ()) -> Resuming:
        """Return the part that a plan may have, with all other options by name.

        ``kept_urls`` has the handler's options whose URLs a resume takes from the plan itself.

        A person copies the command, and the plan may be a stranger's. So it has no option that
        could run code or lead a login to another place. A resume asks for the handler.
        """
        options: list[str] = []
        needs = list(self.needs)
        for name, text in self._pairs:
            short = len(text) <= VALUE_LENGTH and len(options) < 2 * OPTIONS_MOST
            if short and is_printable(text) and _is_harmless(name, text):
                options += name, text
            elif name not in _ASKED_FOR and not text.startswith("key-format="):
                named, equals, value = text.partition("=")
                if name == "--set" and named in kept_urls and "://" in value:
                    continue
                needs.append(f"{name} {encodable(named if equals else '')[:100]}{equals}…")
        if self.engine == "spark" and not {"--engine", "--master"}.intersection(options):
            options = ["--engine", "spark", *options[: 2 * OPTIONS_MOST - 2]]
        return replace(self, options=tuple(options), needs=tuple(needs[:OPTIONS_MOST]))
