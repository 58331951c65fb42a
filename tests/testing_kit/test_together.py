"""Folding and batches end as one sub-message after the other does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drainer import SubMessage, testing
from drainer.testing import Effort, LawBroken, Level

from . import handlers

pytestmark = pytest.mark.usefixtures("no_other_process")

QUICK = Effort(examples=10)
SAMPLE = testing.messages([[f"d{(n * m) % 3}" for m in range(3)] for n in range(12)])


class Folds(handlers.Documents):
    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
        return later


class Batches(handlers.Documents):
    max_batch = 5

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        for sub in subs:
            await self.handle(sub)


class KeepsTheFirst(Folds):
    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
        return earlier


class Turned(Batches):
    batch_of = "lane"

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        for sub in reversed(subs):
            await self.handle(sub)


class Raises(Folds):
    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
        raise LookupError("no idea")


@pytest.mark.parametrize("handler", [Folds, Batches])
def test_what_ends_in_the_same_state_passes(handler: type[handlers.Documents]) -> None:
    certificate = testing.certify(handler, SAMPLE, handlers.state, effort=QUICK)

    assert certificate.findings[-1].check == "together"
    assert {finding.level for finding in certificate.findings} == {Level.OK}
    testing.check_together(handler, SAMPLE, handlers.state)


@pytest.mark.parametrize("handler", [KeepsTheFirst, Turned])
def test_what_does_not_is_found_with_a_few_messages(handler: type[handlers.Documents]) -> None:
    with pytest.raises(LawBroken, match=r": orders/0/10\[0\].*orders/0/11\[0\]"):
        testing.check_together(handler, SAMPLE, handlers.state)


def test_a_coalesce_that_raises_is_reported() -> None:
    with pytest.raises(LawBroken) as broken:
        testing.check_together(Raises, SAMPLE, handlers.state)
    assert (
        "leave an error (coalesce raised LookupError: no idea, for orders/0/10[0] up to"
        " orders/0/11[0], sub-key 'd0') as a drain folds and batches them; one by one, no error"
    ) in str(broken.value)


def test_a_handler_with_neither_has_nothing_to_check() -> None:
    certificate = testing.certify(handlers.Documents, SAMPLE, handlers.state, effort=QUICK)
    findings = certificate.findings
    assert "together" not in {finding.check for finding in findings}
