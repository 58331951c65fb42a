"""Any text that a handler or a key brings: no drain fails by it, and it fits everywhere."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from builders import a_plan
from core.letters import Sample, there_and_back
from drainer import errors
from drainer.control.wire import About, DrainReport
from drainer.core.merge import TaskRecord
from drainer.engine.history import History
from drainer.handler import Fatal, GiveUp
from drainer.message import Message, SubMessage
from drainer.metrics.server import StatusCollector
from drainer.model.account import Event, EventKind
from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.status import LimitStatus, Status, Summary
from drainer.policy.exact_json import as_literal
from drainer.spark.state.records import TaskStatus, encode_record
from drainer.text.escape import SCREEN, is_printable, json_text
from drainer.text.mask import describe, key_repr
from drainer.view.plan import history_page, plan_page
from drainer.view.report.page import html
from drainer.view.summary import drain_page
from drainer.view.terminal import Terminal
from engine.made_up_kafka import OnTheLoop, VirtualDrains, in_lanes
from view import samples

# Half surrogate pairs, control and bidi characters, NUL, line breaks, and what is very long.
ODD = ["\ud83d", "bad \udcff name", "\0", "\x1b[2J", "\u202e", "a\nb\r\u2028c", "", "x" * 300_000]
TEXTS = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(ODD)
ERRORS = [ValueError, Fatal, GiveUp, errors.Halted, errors.RecordNotWritten]
POLICIES = [OnFailure.HALT, OnFailure.PARK, OnFailure.SKIP, OnFailure.DEAD_LETTER]
ABOUT = About("orders.plan.json", "orders", "indexer", "d-1", "process", samples.ENDED.isoformat())


class Odd(OnTheLoop):
    """Gives one message a sub-key with a text, and fails for it, or at its split."""

    def __init__(self, text: str, error: BaseException, *, splits: bool) -> None:
        super().__init__()
        self._key, self._error, self._splits = f"key {text}", error, splits

    def split(self, message: Message) -> list[SubMessage]:
        if message.offset == 3 and self._splits:
            self.account.failed.append((message.partition, message.offset, 0))
            raise self._error
        return [SubMessage(self._key if message.offset == 3 else "plain")]

    async def handle(self, sub: SubMessage) -> None:
        with self.account.handling(sub):
            if sub.key == self._key:
                raise self._error


def drained(handler: Odd, on_failure: OnFailure) -> tuple[OffsetPlan, Summary, list[Status]]:
    """The plan on disk, the summary and each status of a drain; then it is resumed to its end."""
    policy = FailureSettings(
        on_failure=on_failure, on_split_failure=on_failure, retries=0, max_doubt_s=0.02
    )
    with TemporaryDirectory() as folder:
        rehearsal = VirtualDrains(Path(folder)).rehearsal(in_lanes(6), failures=policy)
        summary = rehearsal.drain(handler)
        plan, statuses = rehearsal.file.load().plan, rehearsal.statuses
        rehearsal.drain(OnTheLoop())
        assert rehearsal.group.committed == {0: 6}
    return plan, summary, statuses


def texts_of(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict):
        return [text for each in value.items() for one in each for text in texts_of(one)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in texts_of(each)]
    return [value] if isinstance(value, str) else []


@settings(max_examples=settings().max_examples // 8, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.sampled_from(ERRORS), st.sampled_from(POLICIES), st.booleans())
@example("\ud83d", ValueError, OnFailure.HALT, False)
@example("\ud83d", ValueError, OnFailure.HALT, True)
@example("\ud83d", ValueError, OnFailure.SKIP, True)
@example("x" * 300_000, Fatal, OnFailure.HALT, False)
def test_a_drain_that_meets_any_text_saves_commits_reports_and_resumes(
    text: str, kind: type[Exception], on_failure: OnFailure, splits: bool
) -> None:
    handler = Odd(text, type("Odd\n\u202e", (kind,), {})(text), splits=splits)

    plan, summary, statuses = drained(handler, on_failure)

    # The end is in the plan, and its offset in the group.
    assert plan.account.history[-1].what is EventKind.ENDED
    assert plan.account.committed[0] == plan.account.watermark(0)
    assert summary.exit_code in (0, 5, 6)
    assert OffsetPlan.decode(plan.encode()) == plan
    assert all(len(each) < 2 * SCREEN for each in (summary.error or "", *texts_of(plan.as_json())))
    # Every form of output takes it.
    history = History()
    for status in statuses:
        history.add(status)
    pages = (
        drain_page(samples.action(), summary, history, samples.ENDED),
        plan_page(plan),
        history_page(plan),
    )
    out = StringIO()
    for page in pages:
        html(page, samples.ENDED).encode()
        Terminal(stdout=out, stderr=out).present(page)
    assert all(is_printable(line) and len(line) < 6 * SCREEN for line in out.getvalue().split("\n"))
    json.loads(json_text(summary.as_json()).encode())
    report = DrainReport(ABOUT, statuses[-1], 0.0, summary.as_json()).encoded()
    assert DrainReport.decoded(report).about == ABOUT
    registry, collector = CollectorRegistry(), StatusCollector("orders", "g", "d-1", lambda: 0.0)
    registry.register(collector)
    collector.update(statuses[-1])
    generate_latest(registry)


@given(TEXTS, st.sampled_from(ERRORS))
def test_a_dead_letter_and_a_task_on_spark_take_any_text(text: str, kind: type[Exception]) -> None:
    from drainer.spark.session.failure import Carried, failure_of  # noqa: PLC0415 - needs PySpark

    error = type("Odd\n\u202e", (kind,), {})(text)
    letter = there_and_back(Sample(text[:900], error=error))
    assert letter.key == text[:900], "a key is kept as it is: another one would be another lane"
    assert is_printable(letter.error)

    key, trouble = repr((text, 1)), describe(error)
    status = TaskStatus(trouble=trouble, limits=LimitStatus(hottest=((key_repr(text), 1),)))
    encode_record(TaskRecord(parked=(key,)), {}, status)
    carried = failure_of(RuntimeError(str(Carried(errors.HandleFailed(f"at 0: {trouble}")))))
    assert (type(carried), is_printable(str(carried))) == (errors.HandleFailed, True)
    str(carried.__cause__).encode()


@given(TEXTS, TEXTS)
def test_an_event_takes_any_text_and_a_plan_with_it_is_read_back(by: str, detail: str) -> None:
    plan = a_plan(9)
    event = Event(plan.terms.created, EventKind.CHANGED, by, "why", (detail,))
    noted = OffsetPlan(plan.terms, plan.account.with_event(event))
    assert OffsetPlan.decode(noted.encode()) == noted


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_two_sub_keys_stay_two(one: str, other: str) -> None:
    assert (key_repr(one) == key_repr(other)) == (one == other)
    assert (as_literal(one) == as_literal(other)) == (one == other)


@pytest.mark.parametrize("text", ODD)
def test_an_error_of_drainer_is_printable_and_fills_a_screen_at_most(text: str) -> None:
    error = errors.Refused(f"can't read {text}", hint=f"Look at {text[:99]}")
    again = errors.Interrupted(str(error), hint=error.hint)
    assert is_printable(str(error))
    assert is_printable(error.hint or "")
    assert (str(again), again.hint, len(str(error)) <= SCREEN) == (str(error), error.hint, True)
