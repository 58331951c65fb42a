"""What a resume has to repeat of the options of the last run, and the command or call to resume."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from drainer.model.codec import JsonRecord
from drainer.model.option import Option, options_of
from drainer.model.settings import LocalSettings
from drainer.text.escape import command, encodable, is_printable

_HARMLESS = ("--concurrency", "--deadline", "--engine", "--metrics", "--report")
_HARMLESS_TUNE = ("buffer", "grace", "metrics-linger", "log-format")
_HERE = re.compile(r"local(\[.*\])?|yarn")  # Masters that lead to no other place.
# What these options name is in the terms, and a resume asks for it.
_ASKED_FOR = ("--handler", "--value-format", "--bootstrap-server", "--client-config", "--registry")
OPTIONS_MOST = 100
VALUE_LENGTH = 1_000
_Short = Annotated[str, Meta(max_length=VALUE_LENGTH)]
_LOCAL = re.compile(r"(?:__main__:|.*<locals>\.)([\w.]+)")


def local_class(reference: str) -> str | None:
    """Return the class that a reference names if only the program that defined it has it.

    A notebook is such a program, too. Return None for a handler that any process can load.
    """
    return found[1] if (found := _LOCAL.fullmatch(reference)) else None


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
        options: options as they were given for this run, each followed by its value.
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
        name, place = self._local_class, repr(str(plan))
        if name is None:
            return command("resume", plan, options=(*more, *self.options))
        if ("--engine", "spark") in self._pairs and not more:
            return f"drainer.spark.drain(…, plan={place}, handler={name})"
        settings = f", settings=drainer.LocalSettings({found})" if (found := self._settings) else ""
        gap = ", accept_gap=True" if "--accept-gap" in more else ""
        return f"drainer.resume({place}, client=…, handler={name}{settings}{gap})"

    @property
    def _settings(self) -> str:
        """The options of this run as arguments of ``LocalSettings``, such as ``concurrency=5``."""
        found = []
        for name, option in options_of(LocalSettings).items():
            texts = self.given(option)
            if option.pairs and texts:
                found.append(f"{name}={dict(text.partition('=')[::2] for text in texts)}")
            elif texts:
                found.append(f"{name}={texts[0] if texts[0].isdecimal() else repr(texts[0])}")
        return ", ".join(found)

    def way(self, plan: str | Path) -> str:
        """Return a sentence with the command, where it works, and the options that it lacks."""
        return f"To resume it: `{self.command(plan)}`{self.lacking}"

    def note(self, why: str = "") -> str:
        """Return where the command works, and which options to add to it, with the text ``why``.

        The note is empty if the command works as it is, in any shell.
        """
        name = self._local_class
        place = f"in the program that defines {name}" if name else ""
        lacks = f"add {', '.join(self.needs)} as before{why}" if self.needs else ""
        return "; ".join(filter(None, (place, lacks)))

    @property
    def lacking(self) -> str:
        """The text of ``note`` in brackets, to stand behind the command; empty if it is empty."""
        return f" ({note})" if (note := self.note()) else ""

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
