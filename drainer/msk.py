"""The login of AWS MSK IAM: tokens by the signer of AWS, a new one whenever a client requests it.

The signer looks up the credentials for each token, so those of a role may expire during a drain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from drainer.errors import Refused
from drainer.extensions import ensure_installed

# Gives a token, and when it expires, in seconds since 1970. librdkafka calls it from a thread of
# its own when four fifths of a token's life are over, and 10 s after it raised.
TokenSource = Callable[[str], tuple[str, float]]


def token_source(aws: Mapping[str, str]) -> TokenSource:
    """Source of tokens for a region, by a ``role.arn``, a ``profile`` or what the machine has.

    Raises ExtraMissing without the signer.
    """
    ensure_installed("msk", "sasl.mechanism=AWS_MSK_IAM")
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - with botocore

    signer, region = MSKAuthTokenProvider, aws["region"]
    sign = partial(signer.generate_auth_token, region)
    if "role.arn" in aws:
        session = [aws["role.session.name"]] if "role.session.name" in aws else []
        sign = partial(signer.generate_auth_token_from_role_arn, region, aws["role.arn"], *session)
    elif "profile" in aws:
        sign = partial(signer.generate_auth_token_from_profile, region, aws["profile"])

    def token(_: str) -> tuple[str, float]:
        text, expires_ms = sign()
        return text, expires_ms / 1000

    return token


def ensure_token(aws: Mapping[str, str]) -> None:
    """Raises Refused, in the signer's words, when there are no credentials for a token."""
    make = token_source(aws)
    try:
        make("")
    except Exception as error:  # of botocore, which has many
        raise Refused(
            f"no token for AWS_MSK_IAM: {error}",
            hint="Set AWS_PROFILE, or give the machine a role.",
        ) from error
