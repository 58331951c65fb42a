"""The login of AWS MSK IAM. Its tokens come from AWS's signer, and are renewed in time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial

from drainer.errors import BrokerUnreachable
from drainer.loading.extensions import ensure_installed
from drainer.text.mask import describe
from drainer.text.secret import remember

# A token is valid for 15 minutes, but not after the credentials that signed it have expired. The
# signer looks up the credentials for each token, and AWS's SDK renews those of a role 10 minutes
# before they expire. So a token that is used for only 5 minutes never outlives its credentials.
LIFE_MOST_S = 300.0

# A function that makes a token, and says when it expires, in milliseconds since 1970.
Signer = Callable[[], tuple[str, float]]


class TokenSource:
    """Makes the tokens of one client. The first token is made at once.

    librdkafka calls this object from its own thread when four fifths of a token's life are over. If
    the call raises an error, librdkafka repeats it after 10 s. The last token may still be valid
    then.

    Args:
        sign: makes a token.
        report: is called with the reason why a token could not be made, and with "" when one was.
        clock: returns the time in seconds since 1970.

    Raises BrokerUnreachable with the signer's words when the first token can't be made.
    """

    def __init__(
        self, sign: Signer, report: Callable[[str], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._sign, self._report, self._clock = sign, report, clock
        remember({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
        # The first token is made now, because a client whose callback fails takes 10 s to make.
        self._first: tuple[str, float] | None = self._made()

    def __call__(self, config: str) -> tuple[str, float]:
        """Return a token, and until when it may be used, in seconds since 1970.

        Raises BrokerUnreachable. librdkafka notes only that the call failed, and not why.
        """
        first, self._first = self._first, None
        return first or self._made()

    def _made(self) -> tuple[str, float]:
        try:
            text, expires_ms = self._sign()
        except Exception as error:  # botocore has many kinds of errors.
            trouble = f"no token for AWS_MSK_IAM: {describe(error)}"
            self._report(trouble)
            hint = "Set AWS_PROFILE, or give the machine a role."
            raise BrokerUnreachable(trouble, hint=hint) from error
        self._report("")
        return text, min(expires_ms / 1000, self._clock() + LIFE_MOST_S)


def signer(aws: Mapping[str, str]) -> Signer:
    """Return the signer for a region.

    It uses a ``role.arn``, a ``profile``, or the credentials that the machine has. Raises
    ExtraMissing when the signer is not installed.
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
