"""Kinds of errors: what is left of an error's text without what differs from one to the next."""

from __future__ import annotations

import re

LENGTH = 500  # characters that are looked at: a pattern may take the square of it
_VARYING = re.compile(
    r"""
    (?P<kept> (?i:\b(?:errno|status|code|http(?:/[\d.]+)?)\W{0,3}\d{1,3}\b)
        | '?\b[1-5]\d\d(?:\s[A-Z][\w\s]*'|(?=\s[A-Z]|,\smessage=))  # of HTTP: '404 Not Found'
        | (?<!\w)(?P<quote>['"])[A-Za-z_.]{1,40}(?P=quote)(?!\w) )  # a field, a type, a table
    | (?<![\w+.-])[A-Za-z][\w+.-]*://[^\s'"<>]*[^\s'"<>.,:;)]       # a URL
    | (?<!\w)'[^']*'(?!\w) | "[^"]*"
    | (?<![\w@:/+.-])[\w@:/+.-]*\d[\w@:/+.-]*\b                     # a word with a digit: an id
    """,
    re.VERBOSE,
)


def kind_of(text: str) -> str:
    """The text of an error with ``…`` for ids, numbers, URLs and quoted values.

    HTTP statuses, error numbers and quoted names stay: they are different kinds.
    """
    return _VARYING.sub(lambda found: found["kept"] or "…", text[:LENGTH])
