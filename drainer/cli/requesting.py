"""What ``run`` and ``estimate`` ask for, from the options that both take."""

from __future__ import annotations

from drainer.cli.connecting import Kafka
from drainer.cli.options import How, What
from drainer.cli.policy import Failing
from drainer.cli.rules import Rules
from drainer.loader import load_handler
from drainer.operations.start import Request
from drainer.policy.rate_cap import CapCurve


def request_of(
    what: What, how: How, kafka: Kafka, failing: Failing, rules: Rules, limits: CapCurve | None
) -> Request:
    """The request, with its handler loaded. Raises UsageError, or what loading raises."""
    return Request(
        topic=what.topic,
        group=what.group,
        handler=load_handler(what.handler),
        partitions=what.partitions,
        from_=what.from_,
        until=what.until,
        order=what.order,
        plan_path=how.plan,
        client_config=kafka.client_config,
        failures=failing.over(),
        limits=limits,
        rules=rules.over(),
    )
