"""Checks of a handler, for its own tests, against the promise of docs/explanation/correctness.md.

No Kafka is needed. ``check_split``, ``check_commutes``, ``check_idempotent`` and
``check_together`` raise LawBroken, an AssertionError, with the smallest counter-example found.
"""

from drainer.certify.certify import (
    certify,
    check_commutes,
    check_idempotent,
    check_split,
    check_together,
)
from drainer.certify.finding import Certificate, Finding, HandlerDoubt, LawBroken, Level
from drainer.certify.subject import message, messages
from drainer.certify.trial import Effort
from drainer.wings import Extra, insist_on

__all__ = [
    "Certificate",
    "Effort",
    "Finding",
    "HandlerDoubt",
    "LawBroken",
    "Level",
    "certify",
    "check_commutes",
    "check_idempotent",
    "check_split",
    "check_together",
    "message",
    "messages",
]

insist_on(Extra.CERTIFY, "drainer.testing")
