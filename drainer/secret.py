"""Secrets: settings that must not be shown, and what variables of the environment keep secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from drainer.errors import UsageError

CHARACTERS_LEAST = 16  # fewer can be found out by trying

LOGIN_PAIR = "user.info"  # ends the name of a ``user:password``

_SECRET = re.compile(
    r"secret|user\.info|passw(or)?d|passphrase|token|credential|jaas|(access|account|api|private|encryption)"
    r"[._-]?key",
    re.IGNORECASE,
)
_SECRET_PROPERTY = re.compile(
    r"\.pem$|oauthbearer\.config$", re.I
)  # properties, whatever their value
_NO_SECRET = re.compile(r"\.url$|\.location$|\.file$", re.I)
IN_A_URL = re.compile(
    r"://[^/\s?#]*@|[?&](sig|key|code|[^=&\s]*(signature|auth|sas))=", re.IGNORECASE
)
_LOGIN = re.compile(r":\S*@")
_LOGIN_IN_A_URL = re.compile(r"://([^/\s?#]*)@")
_QUERY_OF_A_URL = re.compile(r"://[^\s?#]*(\?[^\s#]+)")
REDACTED = "***"
# Names that handlers' authors choose; too many are named without their value rather than too few.
_CHOSEN = re.compile(
    r".key$|auth|bearer|cookie|cred|dsn|jwt|pass|private|pwd|^pw$|signature|token", re.IGNORECASE
)
# No word that a person reads: long, with digits among letters.
_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+=_~-]{20,}")


def is_secret(name: str) -> bool:
    """Whether a property's value must never be shown."""
    found = _SECRET.search(name) or _SECRET_PROPERTY.search(name)
    return found is not None and not _NO_SECRET.search(name)


def hides(name: str, value: str) -> bool:
    """Whether a setting of anything else must not be shown: Java options, URLs and the like carry
    secrets in their values, too."""
    texts = _SECRET.search(name), _SECRET.search(value), IN_A_URL.search(value)
    return is_secret(name) or any(texts)


def redact(text: str, properties: Mapping[str, str]) -> str:
    """The text with all replaced that is secret in these properties."""
    secrets = {value for name, value in properties.items() if is_secret(name)}
    pairs = {value for name, value in properties.items() if name.endswith(LOGIN_PAIR)}
    logins = {each for value in properties.values() for each in _LOGIN_IN_A_URL.findall(value)}
    secrets |= {each for value in properties.values() for each in _QUERY_OF_A_URL.findall(value)}
    secrets |= logins | {each.partition(":")[2] for each in pairs | logins}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def may_hide(name: str, value: str, chosen: bool) -> bool:
    """Whether a ``name=value`` is better not shown; of names that were ``chosen`` freely, more."""
    if hides(name, value) or _LOGIN.search(value):
        return True
    return chosen and bool(_CHOSEN.search(name) or _RANDOM.fullmatch(value))


def secret_of(variable: str) -> str:
    """The secret that a variable holds; empty without one. Raises UsageError if it is weak."""
    value = os.environ.get(variable, "")
    if value and len(value) < CHARACTERS_LEAST:
        raise UsageError(
            f"{variable} must be a secret of at least {CHARACTERS_LEAST} characters, but has"
            f" {len(value)}",
            hint=f'Make one: export {variable}="$(openssl rand -hex 16)"',
        )
    return value
