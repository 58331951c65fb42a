"""Options: what the command line knows of a setting, declared on its field."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from drainer.model.values import ValueType, type_of
from drainer.secret import IN_A_URL, may_hide

PREFIX = "DRAINER_"  # of variables
_BY_NAME = "by its name"
_KEY = "option"


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One option or argument, and what it changes."""

    help: str
    default: Any = ...  # the value when nothing is given; ``...`` when something must be
    kind: ValueType | None = None  # by the field's type unless it is given
    _: KW_ONLY
    unset: str | None = None  # what the help calls a default that is no value
    name: str = ""  # as in ``--buffer``, by the field's name unless it is given; an argument's word
    short: str | None = None  # as in ``-b``
    metavar: str | None = None  # that of its kind unless it is given
    panel: str | None = None  # of the help
    basic: bool = False  # whether the short help has it
    resumes: bool = False  # whether a command to resume repeats it: no plan has it
    live: bool = False  # whether ``drainer set`` may change it while a drain runs
    envvar: str | None = _BY_NAME  # the variable that gives its value, too
    risk: str | None = None  # why it must be typed each time, not given by variable or profile
    pairs: bool = False  # whether it is ``NAME=VALUE``, and the value may be a secret
    hides: bool = False  # whether its value may be a secret as a whole
    proposes: str | None = None  # what a shell proposes for it
    repeats: bool = False
    is_argument: bool = False
    is_flag: bool = False

    @property
    def word(self) -> str:
        """The name by which errors call it, as in ``--buffer``."""
        return self.name.partition("/")[0]

    @property
    def variable(self) -> str | None:
        """The variable that gives its value, too; None when none does."""
        if self.risk or self.is_argument:
            return None
        if self.envvar != _BY_NAME:
            return self.envvar
        return f"{PREFIX}{self.word.strip('-').upper().replace('-', '_')}"

    @property
    def key(self) -> str | None:
        """The key that gives its value in a profile; None when none does."""
        if self.is_argument or self.risk or (self.envvar is None and not self.repeats):
            return None
        return (
            (self.variable or self.word.strip("-")).removeprefix(PREFIX).lower().replace("_", "-")
        )

    @property
    def default_text(self) -> str | None:
        """The default as it is typed; None when there is no value, or when it is empty."""
        if self.default in (..., None, (), {}):
            return None
        if self.is_flag:
            return "yes" if self.default else None
        assert self.kind is not None
        return self.kind.show(self.default)

    @property
    def text(self) -> str:
        """The help, with what it calls the default."""
        return self.help if self.unset is None else f"{self.help} Default: {self.unset}."

    @property
    def typed_as(self) -> str:
        """The word for its value."""
        assert self.kind is not None
        return self.metavar or self.kind.metavar

    def parse(self, given: Any) -> Any:
        """The value of what was typed; of all texts where it repeats. Raises UsageError."""
        if self.is_flag or self.kind is None:
            return given
        if not self.repeats or self.kind.repeats:
            return self.kind.parse(given)
        return tuple(map(self.kind.parse, given))

    def without_secret(self, text: str) -> str:
        """One value as it may be shown: with ``…`` in the place of what may be a secret."""
        if not self.pairs:
            return "…" if self.hides or IN_A_URL.search(text) else text
        name, _, value = text.partition("=")
        return f"{shlex.quote(name)}=…" if may_hide(name, value, self.word == "--set") else text

    def of(self, field_name: str, annotation: Any) -> Option:
        """The same option of a field or parameter, whose name and type complete it."""
        # Of ``X | None`` X is typed, of ``tuple[X, ...]`` each X.
        inner = next((each for each in get_args(annotation) if each is not NoneType), annotation)
        repeats = self.kind is None and get_origin(annotation) in (tuple, list)
        return replace(
            self,
            name=self.name or f"--{option_name(field_name)}",
            kind=self.kind or type_of(inner),
            repeats=repeats or (self.kind is not None and self.kind.repeats),
            is_flag=inner is bool,
        )


def option(help: str, default: Any = ..., kind: ValueType | None = None, **more: Any) -> Any:
    """Declare an option as a field of a dataclass; takes what ``Option`` has."""
    return as_field(Option(help, default, kind, **more))


def as_field(declared: Option) -> Any:
    """The field of a dataclass that an option declares."""
    default, metadata = declared.default, {_KEY: declared}
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def options_of(settings: type) -> Mapping[str, Option]:
    """The options of a dataclass, by the names of their fields."""
    types = get_type_hints(settings)
    return {
        each.name: each.metadata[_KEY].of(each.name, types[each.name])
        for each in fields(settings)
        if _KEY in each.metadata
    }


def option_name(field: str) -> str:
    """``retry-delay`` for the field ``retry_delay_s``: the long name of its option."""
    return field.removesuffix("_s").removesuffix("_bytes").strip("_").replace("_", "-")
