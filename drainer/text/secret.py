"""Recognizes settings that must not be shown, and removes secrets from texts.

A service, registry or broker may repeat in an error what drainer sent to it. So each process
remembers the secrets of its settings, and ``escape.foreign`` replaces them in every text from
elsewhere. The secrets are only in memory: they are never pickled, written or printed.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote

# A property whose name ends with this has a value of the form ``user:password``.
LOGIN_PAIR = "user.info"
# A secret with fewer characters may be a part of a word, so it is replaced as a whole word only.
SHORT = 8

SECRET = re.compile(
    r"secret|user\.info|passw(or)?d|passphrase|token|credential|jaas|(access|account|api|private|encryption)"
    r"[._-]?key",
    re.IGNORECASE,
)
# The names of secret properties that SECRET does not find.
_SECRET_PROPERTY = re.compile(r"\.pem$|oauthbearer\.config$", re.I)
_NO_SECRET = re.compile(r"\.url$|\.location$|\.file$", re.I)
IN_A_URL = re.compile(
    r"://[^/\s?#]*@|[?&](sig|key|code|[^=&\s]*(signature|auth|sas))=", re.IGNORECASE
)
_LOGIN = re.compile(r":\S*@")
_LOGIN_IN_A_URL = re.compile(r"://([^/\s?#]*)@")
_IN_A_QUERY = re.compile(
    r"[?&](sig|key|code|[^=&\s]*(signature|auth|sas|token|secret|passw|key))=([^&\s#]+)",
    re.IGNORECASE,
)
_QUERY_OF_A_URL = re.compile(r"://[^\s?#]*(\?[^\s#]+)")
REDACTED = "***"
# This finds the names of secrets among the names that authors of handlers choose. It is better to
# hide too many values than too few.
_CHOSEN = re.compile(
    r".key$|auth|bearer|cookie|cred|dsn|jwt|pass|private|pwd|^pw$|signature|token", re.IGNORECASE
)
# A value that looks random: it is long, and has letters and digits.
_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+=_~-]{20,}")


def is_secret(name: str) -> bool:
    """Return whether the value of a property of this name must never be shown."""
    found = SECRET.search(name) or _SECRET_PROPERTY.search(name)
    return found is not None and not _NO_SECRET.search(name)


def hides(name: str, value: str) -> bool:
    """Return whether a setting of any program must not be shown.

    Its value is examined, too, because Java options and URLs, for example, may contain secrets.
    """
    texts = SECRET.search(name), SECRET.search(value), IN_A_URL.search(value)
    return is_secret(name) or any(texts)


def remember(properties: Mapping[str, str], *, chosen: bool = False) -> None:
    """Remember the secrets in these properties, so that ``redact`` replaces them in this process.

    With ``chosen``, a handler's author has chosen the names. A property is then also secret if its
    name is similar to that of a secret and its value looks random.
    """
    found = (secret.strip().strip("\\") for secret in _secrets_in(properties, chosen))
    for secret in filter(None, found):
        data = secret.encode(errors="backslashreplace")
        encoded = (b64encode(data), urlsafe_b64encode(data))
        for sent in (secret, *(each.decode().rstrip("=") for each in encoded)):
            remembered.setdefault(sent, _pattern_of(sent))


def redact(text: str) -> str:
    """Replace every remembered secret in a text, however it is encoded there."""
    patterns = sorted(remembered.values(), key=len, reverse=True)
    return re.sub("|".join(patterns), REDACTED, text) if patterns else text


remembered: dict[str, str] = {}  # Regular expressions by the text of the secret that they find.


def _secrets_in(properties: Mapping[str, str], chosen: bool) -> Iterator[str]:
    for name, value in properties.items():
        if is_secret(name) or (chosen and _CHOSEN.search(name) and _RANDOM.fullmatch(value)):
            yield value
        yield from _QUERY_OF_A_URL.findall(value)
        yield from (found[3] for found in _IN_A_QUERY.finditer(value))
        pairs = _LOGIN_IN_A_URL.findall(value)
        if name.endswith(LOGIN_PAIR):
            pairs.append(value)
        elif (prefix := name.removesuffix("password")) != name:
            users = map(properties.get, (f"{prefix}user", f"{prefix}username"))
            pairs += [f"{user}:{value}" for user in users if user]
        for pair in {*pairs, *map(unquote, pairs)}:
            yield pair
            yield pair.partition(":")[2]


def _pattern_of(secret: str) -> str:
    """Make a regular expression that finds a secret in time that is linear in the text.

    It finds the secret as it is, and escaped once or several times for JSON, a URL, HTML or a repr.
    """
    plain = re.sub(r"(\\)\\+|(%)(?:25)+", r"\1\2", secret)
    found = "".join(map(_pattern_of_character, plain))
    before = "" if secret[0].isascii() and secret[0].isalnum() else r"(?<!\\)"
    return before + (rf"(?<!\w){found}(?!\w)" if len(secret) < SHORT else found)


def _pattern_of_character(char: str) -> str:
    if char.isascii() and char.isalnum():
        return char
    if char == "\\":  # The number of backslashes depends on how often the secret was escaped.
        return r"(?i:\\|%(?:25)*+5C)++"
    data = char.encode(errors="replace")
    forms = {char, json.dumps(char)[1:-1], repr(char)[1:-1], repr(data)[2:-1], html.escape(char)}
    forms |= {quote(data, safe=""), "+" if char == " " else char}
    words = sorted(re.escape(form.lstrip("\\")) for form in forms)
    again = (word.replace("%", "%(?:25)*+").replace(r"\\", r"\\++") for word in words)
    return rf"\\*+(?:{'|'.join(f'(?i:{word})' for word in again)})"


def may_hide(name: str, value: str, chosen: bool) -> bool:
    """Return whether the value of a setting might be secret, so that it is better not to show it.

    If a handler's author has ``chosen`` the name, more names and values count as secret.
    """
    if hides(name, value) or _LOGIN.search(value):
        return True
    return chosen and bool(_CHOSEN.search(name) or _RANDOM.fullmatch(value))
