"""Destinations of a drain other than its topic, and the logins of the client file that they get.

A plan may come from a stranger. So a login goes only to a destination that the client file or the
command line names, and such a destination is used instead of the plan's. The tables here are also
used for the question that drainer asks before it uses a plan. Tests compare them with the secrets
that are redacted and with docs/howto/permissions.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from drainer.errors import PlanRefused
from drainer.model.listed import listed
from drainer.model.terms import Terms

# Prefixes of properties in the client file, and the kind of destination that gets each login.
AWS, SERVICE, REGISTRY = "aws.", "http.", "schema.registry."
LOGINS = {AWS: "brokers", SERVICE: "service", REGISTRY: "registry"}
_NO_LOGIN = re.compile(r"url|ssl\.ca\..*|.*\.credentials\.source|timeout|max\.retries")


@dataclass(frozen=True, slots=True)
class Destination:
    """A place that the terms of a drain name.

    Attributes:
        prefix: how the names of its login's properties begin; empty if it never gets a login.
        words: the words by which a command line names it.
        replaceable: whether the client file's ``url`` can stand in for it.
    """

    kind: str
    place: str
    prefix: str = ""
    words: tuple[str, str] = ("", "")
    replaceable: bool = False

    def login(self, extras: Mapping[str, str]) -> str:
        """Return the names of the login's properties as a text; empty without a login."""
        return listed(login_properties(self.prefix, extras)) if self.prefix else ""


def login_properties(prefix: str, extras: Mapping[str, str]) -> list[str]:
    """List the properties of a login. A property that drainer does not know counts as one."""
    named = [name for name in sorted(extras) if name.startswith(prefix)]
    return [name for name in named if not _NO_LOGIN.fullmatch(name.removeprefix(prefix))]


def destinations(terms: Terms) -> Iterator[Destination]:
    """Yield what the terms name besides the brokers and the topic.

    That is each option of the handler, the registry, the decoders, and the topics to which letters
    go.
    """
    for name, text in terms.options.items():
        words = "--set", f"{name}={text}"
        if "://" in text:
            yield Destination(LOGINS[SERVICE], text, SERVICE, words, name == "url")
        else:
            yield Destination("option", words[1])
    payloads, redrive = terms.payloads, terms.redrive
    if (registry := payloads.registry) is not None:
        words = "--registry", registry
        yield Destination(LOGINS[REGISTRY], registry, REGISTRY, words, replaceable=True)
    for kind, place in (
        ("decodes by", payloads.value_format),
        ("decodes by", payloads.key_format),
        ("letters to", terms.failures.dead_letter_topic),
        ("redrives to", None if redrive is None else redrive.to),
    ):
        if place is not None:
            yield Destination(kind, place)


def with_own_destinations(
    terms: Terms, options: Collection[str], extras: Mapping[str, str]
) -> tuple[Terms, list[str]]:
    """Return the terms of a plan without places that the client file replaces, and warnings.

    ``options`` are the names of the handler's options that the command line gives. The terms that
    are returned lack these options, too.

    Raises PlanRefused when a place that only the plan names would get a login.
    """
    plans = {name: text for name, text in terms.options.items() if name not in options}
    terms, warnings = replace(terms, options=plans), []
    for each in destinations(terms):
        own = extras.get(f"{each.prefix}url")
        if not each.prefix or own == each.place:
            continue
        if own is not None and each.replaceable:
            terms = _without(terms, each.place)
            warnings.append(
                f"drainer uses the {each.kind} of the client file, not {each.place}, which the"
                " plan names"
            )
        elif login := each.login(extras):
            raise PlanRefused(
                f"only the plan names the {each.kind} {each.place}, and it would get the login of"
                f" the client file: {login}",
                hint=f"If that is right, add {shlex.join(each.words)}, or {each.prefix}url="
                f"{each.place} to the client file.",
            )
    return terms, warnings


def _without(terms: Terms, place: str) -> Terms:
    options = {name: text for name, text in terms.options.items() if text != place}
    known = terms.payloads.registry
    payloads = replace(terms.payloads, registry=None if known == place else known)
    return replace(terms, options=options, payloads=payloads)
