"""The terms of a drain: what was requested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from drainer.model.codec import JsonRecord, Whole
from drainer.model.failures import FailureSettings
from drainer.model.order import Order
from drainer.model.rate_cap import CapCurve
from drainer.model.redrive import RedriveSettings
from drainer.model.rules import RuleSettings

_DrainId = Annotated[str, msgspec.Meta(pattern=r"^[\w-]+\Z")]  # names a folder, too
_Isolation = Annotated[str, msgspec.Meta(pattern=r"^read_(un)?committed\Z")]
_Order = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(order.value for order in Order)})\Z")]


@dataclass(frozen=True, slots=True)
class Terms(JsonRecord):
    """Request for a drain: all that its tasks need to know, and never a secret.

    A resume gives new terms to an old account.

    Attributes:
        created: ISO 8601 in UTC.
        topic_partitions: how many the topic had when the drain was planned.
        redrive: there when the topic is one of dead letters, which the handler gets as what they
            were.
        limits: what the brokers tolerate, which caps what is read and written.
        handler_code: a digest of the handler's code when the drain last began; None when unknown.
    """

    drain_id: _DrainId
    created: str
    cluster_id: str
    bootstrap_servers: str
    client_config: str | None
    isolation: _Isolation
    topic: str
    topic_id: str
    topic_partitions: Whole
    group: str
    handler: str
    order: _Order
    failures: FailureSettings = field(default_factory=FailureSettings)
    redrive: RedriveSettings | None = None
    rules: RuleSettings = field(default_factory=RuleSettings)
    limits: CapCurve | None = None
    handler_code: str | None = None
