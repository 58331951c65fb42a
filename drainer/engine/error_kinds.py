"""Counts of errors by their kind, for the status. They decide nothing."""

from __future__ import annotations

import re
from collections import Counter

from drainer.text.mask import class_name, describe

TEXT_LENGTH = 160  # This many characters are kept of an error's text.
KINDS_MOST = 50  # Further kinds are counted by the type of the error alone.
LENGTH = 500  # Only this many characters are searched, because a pattern may take quadratic time.
_VARYING = re.compile(
    r"""
    (?P<kept> (?i:\b(?:errno|status|code|answered|http(?:/[\d.]+)?)\W{0,3}\d{1,3}\b)
        | '?\b[1-5]\d\d(?:\s[A-Z][\w\s]*'|(?=\s[A-Z]|,\smessage=))  # of HTTP: '404 Not Found'
        | (?<!\w)(?P<quote>['"])[A-Za-z_.]{1,40}(?P=quote)(?!\w) )  # a field, a type, a table
    | (?<![\w+.-])[A-Za-z][\w+.-]*://[^\s'"<>]*[^\s'"<>.,:;)]       # a URL
    | (?<!\w)'[^']*'(?!\w) | "[^"]*"
    | (?<![\w@:/+.-])[\w@:/+.-]*\d[\w@:/+.-]*\b                     # a word with a digit: an id
    """,
    re.VERBOSE,
)


def kind_of(text: str) -> str:
    """Return the text of an error with ``…`` for ids, numbers, URLs and quoted values.

    HTTP statuses, error numbers and quoted names stay, because they make different kinds.
    """
    return _VARYING.sub(lambda found: found["kept"] or "…", text[:LENGTH])


def summary_of(error: BaseException) -> str:
    """Return the beginning of an error's description, short enough for the plan."""
    return describe(error)[:TEXT_LENGTH]


class ErrorCounts:
    """Counts of errors, by kind.

    Attributes:
        attempts: attempts that ended with an error.
        latest: the text of the last error.
    """

    def __init__(self) -> None:
        self.attempts = 0
        self.latest = ""
        self._kinds = Counter[str]()
        self._types = Counter[str]()

    def count(self, error: BaseException) -> None:
        """Count the error of one more attempt."""
        self.attempts += 1
        self.latest = describe(error)
        kind, name = kind_of(self.latest[:TEXT_LENGTH]), class_name(error)
        self._kinds[kind if kind in self._kinds or len(self._kinds) < KINDS_MOST else name] += 1
        self._types[name if name in self._types or len(self._types) < KINDS_MOST else "other"] += 1

    @property
    def kinds(self) -> tuple[tuple[str, int], ...]:
        """The most frequent kinds of text, and how often each came."""
        return tuple(self._kinds.most_common(KINDS_MOST))

    @property
    def types(self) -> tuple[tuple[str, int], ...]:
        """Classes of errors, and how often each came."""
        return tuple(self._types.items())
