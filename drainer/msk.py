"""The login of AWS MSK IAM: tokens by the signer of AWS, renewed before they expire."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial

from drainer.errors import BrokerUnreachable
from drainer.extensions import ensure_installed
from drainer.mask import describe
from drainer.secret import remember

# A token is of no use once its credentials have expired. The signer looks them up for each token,
# and AWS's SDK renews those of a role 10 min before they expire. The token itself has 15 min.
LIFE_MOST_S = 300.0

Signer = Callable[[], tuple[str, float]]  # makes a token; and when it expires, in ms since 1970


class TokenSource:
    """Tokens for one client, of which the first is made at once.

    librdkafka calls it from a thread of its own when four fifths of a token's life are over, and
    10 s after it raised; until then the last token may still be good.

    Args:
        sign: makes a token.
        report: called with why a token could not be made, and with nothing once one was.
        clock: the time in seconds since 1970.

    Raises BrokerUnreachable, in the signer's words, without a first token.
    """

    def __init__(
        self, sign: Signer, report: Callable[[str], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._sign, self._report, self._clock = sign, report, clock
        remember({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
        # A client that gets none is 10 s in the making.
        self._first: tuple[str, float] | None = self._made()

    def __call__(self, config: str) -> tuple[str, float]:
        """Return a token, and when to have replaced it, in seconds since 1970.

        Raises BrokerUnreachable, of which librdkafka keeps nothing.
        """
        first, self._first = self._first, None
        return first or self._made()

    def _made(self) -> tuple[str, float]:
        try:
            text, expires_ms = self._sign()
        except Exception as error:  # of botocore, which has many
            trouble = f"no token for AWS_MSK_IAM: {describe(error)}"
            self._report(trouble)
            hint = "Set AWS_PROFILE, or give the machine a role."
            raise BrokerUnreachable(trouble, hint=hint) from error
        self._report("")
        return text, min(expires_ms / 1000, self._clock() + LIFE_MOST_S)


def signer(aws: Mapping[str, str]) -> Signer:
    """The signer for a region, by a ``role.arn``, a ``profile`` or what the machine has.

    Raises ExtraMissing without it.
    """
    ensure_installed("msk", "sasl.mechanism=AWS_MSK_IAM")
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Tokens  # noqa: PLC0415 - botocore

    region = aws["region"]
    if "role.arn" in aws:
        session = [aws["role.session.name"]] if "role.session.name" in aws else []
        return partial(Tokens.generate_auth_token_from_role_arn, region, aws["role.arn"], *session)
    if "profile" in aws:
        return partial(Tokens.generate_auth_token_from_profile, region, aws["profile"])
    return partial(Tokens.generate_auth_token, region)
