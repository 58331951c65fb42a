"""``drainer run --or-resume``: a new drain, a resume, or the exit code of one that is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from builders import changed, counts, progress_at
from drainer.errors import EXIT_CLASS_WAITS, EXIT_DEAD_LETTERS, EXIT_DONE, PlanRefused, PlanUnready
from drainer.handler import Handler
from drainer.handlers import Count
from drainer.handlers.produce import Produce
from drainer.loading.loader import LoadedHandler
from drainer.model.account import Event, EventKind
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.priority import NO_CLASSES, PriorityClass, PriorityClasses
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.model.status import CLASS_DONE, CLASS_WAITS, Summary
from drainer.model.terms import PayloadSettings, RedriveSettings
from drainer.model.unhandled import Unhandled
from drainer.operations.repeat import prepare_run
from drainer.operations.start import Prepared, Request
from kafka.topic import Topic
from operations.conftest import MESSAGES, REFERENCE, Story
from operations.handlers import Remembers

EARLIER = "2026-11-21T17:00:00+00:00"
LETTERS = FailureSettings(on_failure=OnFailure.DEAD_LETTER)


def request(story: Story, source: Handler | None = None, **more: Any) -> Request:
    loaded = LoadedHandler(REFERENCE, source or Count())
    asked: dict[str, Any] = {"from_": "earliest", "plan_path": story.file.path, **more}
    return Request(story.topic.name, story.group, asked.pop("handler", loaded), **asked)


def again(
    story: Story, asked: Request | None = None, options: Mapping[str, str] | None = None
) -> Prepared | Summary:
    asked = (asked or request(story)).configured(options)
    return prepare_run(story.cluster, asked, LocalSettings(options=options))


def ended(plan: OffsetPlan, *how: str, kind: EventKind = EventKind.ENDED) -> OffsetPlan:
    event = Event(EARLIER, kind, "ana@db1", None, how)
    return changed(plan, history=(*plan.account.history, event))


def written(story: Story, plan: OffsetPlan) -> OffsetPlan:
    story.file.write(plan)
    return plan


def test_it_begins_then_resumes_what_is_unfinished_and_then_only_repeats_how_it_ended(
    story: Story,
) -> None:
    new = again(story)
    assert isinstance(new, Prepared)
    assert not new.action.resumes
    written(story, ended(story.write_plan(20), "interrupted: no broker"))
    story.topic.produce(["later"])

    on = again(story, request(story, Remembers()))

    assert isinstance(on, Prepared)
    assert on.action.resumes
    assert on.handler.reference == REFERENCE
    assert story.drain(on).messages.done == MESSAGES
    assert story.committed == MESSAGES, "the plan decides what is drained"
    before = story.file.load()
    story.put_group(0)  # whatever the group does by now

    over = again(story)

    assert isinstance(over, Summary)
    assert (over.status, over.exit_code) == ("done", EXIT_DONE)
    assert over.messages.done == MESSAGES
    assert over.ended_before == before.plan.account.history[-1].at
    assert (over.resume, over.conserved) == (None, True)
    assert story.file.load() == before
    assert story.committed == 0


def test_a_drain_that_was_killed_after_its_last_message_goes_on_to_commit(story: Story) -> None:
    story.write_plan(MESSAGES)
    prepared = again(story)
    assert isinstance(prepared, Prepared)
    assert story.drain(prepared).exit_code == EXIT_DONE
    assert story.committed == MESSAGES


def test_a_plan_that_another_process_writes_while_this_one_waits_may_be_tried_again(
    story: Story,
) -> None:
    asked = request(story)

    def begin() -> None:
        story.write_plan(20)

    with pytest.raises(PlanUnready, match="has appeared in the meantime"):
        prepare_run(story.cluster, asked, LocalSettings(), wait=begin)


@pytest.mark.parametrize(
    ("subs", "lost", "unhandled", "code", "only_dead"),
    [
        pytest.param({"done": MESSAGES}, (), {}, EXIT_DONE, False, id="done"),
        pytest.param(
            {"done": MESSAGES - 1, "dead": 1}, (), {}, EXIT_DEAD_LETTERS, True, id="dead letter"
        ),
        pytest.param(
            {"done": MESSAGES - 1, "failed": 1}, (), {}, EXIT_DEAD_LETTERS, False, id="failed"
        ),
        pytest.param(
            {"done": MESSAGES - 1, "dead": 1}, ((3, 5),), {}, EXIT_DEAD_LETTERS, False, id="lost"
        ),
        pytest.param(
            {"done": MESSAGES - 1, "dead": 1},
            (),
            {"payload.kind == 'mail'": 1},
            EXIT_DONE,
            False,
            id="diverted",
        ),
    ],
)
def test_the_exit_code_comes_from_the_plan(
    story: Story,
    subs: dict[str, int],
    lost: tuple[tuple[int, int], ...],
    unhandled: dict[str, int],
    code: int,
    only_dead: bool,
) -> None:
    plan = story.write_plan(MESSAGES)
    known = progress_at(MESSAGES, messages=counts(done=MESSAGES), sub_messages=counts(**subs))
    parts = {0: replace(plan.account.partitions[0], lost=lost)}
    diverted = Unhandled(diverted_by=unhandled)
    plan = changed(plan, claims={ALL: {0: known}}, partitions=parts, unhandled=diverted)
    written(story, ended(plan, "done"))

    over = again(story)

    assert isinstance(over, Summary)
    assert (over.exit_code, over.only_dead) == (code, only_dead)


def test_only_a_class_that_is_left_is_drained_again_and_the_rest_by_a_run_without_only(
    story: Story,
) -> None:
    only = NO_CLASSES.requested(["key == 'a'"], only=True)
    done = PriorityClasses((PriorityClass("key == 'a'", ended=EARLIER),), only=True)
    waits = PriorityClasses((PriorityClass("key == 'a'", ended=EARLIER, cut=True),), only=True)
    plan = story.write_plan(20)
    for classes, code, status in (
        (done, EXIT_DONE, CLASS_DONE),
        (waits, EXIT_CLASS_WAITS, CLASS_WAITS),
    ):
        written(story, ended(changed(plan, classes=classes), "done with key == 'a'"))
        over = again(story, request(story, classes=only))
        assert isinstance(over, Summary)
        assert (over.status, over.exit_code) == (status, code)
        assert over.resume is not None

    rest = again(story)
    assert isinstance(rest, Prepared)
    assert not rest.plan.account.classes.only
    first = again(story, request(story, classes=NO_CLASSES.requested(["key == 'a'"], only=False)))
    assert isinstance(first, Prepared)
    assert first.plan.account.classes.next is None, "it was drained before"
    other = again(story, request(story, classes=NO_CLASSES.requested(["key == 'b'"], only=True)))
    assert isinstance(other, Prepared)
    assert other.plan.account.classes.next == "key == 'b'"


def test_a_plan_of_another_drain_is_refused(story: Story) -> None:
    written(story, ended(story.write_plan(20), "interrupted: no broker"))
    other = replace(request(story), group="others")
    with pytest.raises(PlanRefused, match="is the plan of another drain"):
        again(story, other)
    with pytest.raises(PlanRefused, match="is the plan of another drain"):
        again(story, replace(request(story), commits=False, until="5"))


@pytest.mark.parametrize(
    ("own", "theirs", "said"),
    [
        (
            {},
            {"handler": "/elsewhere/evil.py:Reindex"},
            "handler /elsewhere/evil.py:Reindex, not count",
        ),
        ({"partitions": (0,)}, {"partitions": True}, "partitions 1"),
        ({}, {"topic_partitions": 2}, "partitions 0"),
        ({}, {"partitions_chosen": True}, "partitions 0"),
        ({"partitions": (0,)}, {}, "partitions 0 and any that are added"),
        ({}, {"order": "none"}, "order none, not sub-key"),
        ({}, {"isolation": "read_uncommitted"}, "isolation level read_uncommitted"),
        ({}, {"payloads": PayloadSettings(split="items")}, "split items, not none"),
        ({}, {"payloads": PayloadSettings(value_format="evil:decode")}, "value format evil:decode"),
        ({}, {"payloads": PayloadSettings(registry="http://evil")}, "registry http://evil"),
        ({}, {"options": {"url": "http://evil"}}, "option url http://evil, not none"),
        ({}, {"failures": replace(LETTERS, dead_letter_topic="evil")}, "dead-letter topic evil"),
        (
            {"failures": replace(LETTERS, dead_letter_topic="mine")},
            {"failures": replace(LETTERS, dead_letter_topic="evil")},
            "dead-letter topic evil, not mine",
        ),
        ({}, {"redrive": RedriveSettings()}, "dead letters to redrive"),
    ],
)
def test_what_only_the_plan_names_is_refused_and_named(
    story: Story, own: dict[str, Any], theirs: dict[str, Any], said: str
) -> None:
    plan = story.write_plan(20)
    if theirs.pop("partitions", None):
        parts, claims = plan.account.partitions, plan.account.claims
        plan = changed(plan, partitions={1: parts[0]}, claims={ALL: {1: claims[ALL][0]}})
    plan = OffsetPlan(replace(plan.terms, **theirs), plan.account)
    for known in (plan, ended(plan, "done")):
        written(story, known)
        with pytest.raises(PlanRefused, match=f"^{story.file.path} is the plan .*{said}") as raised:
            again(story, request(story, **own))
        assert "another plan with --plan. To resume it: `drainer resume" in str(raised.value.hint)


def test_an_option_that_only_the_command_has_is_another_destination_too(story: Story) -> None:
    target = Topic(story.cluster.settings.bootstrap_servers, f"{story.topic.name}-target", 3)
    try:
        to = {"topic": target.name}
        asked = request(story, handler=LoadedHandler("produce", Produce))
        new = again(story, asked, to)
        assert isinstance(new, Prepared)
        assert new.plan.terms.options["partitions"] == "3"
        plan = ended(new.plan, "interrupted: no broker")
        written(story, plan)

        on = again(story, asked, to)
        assert isinstance(on, Prepared)
        assert on.plan.terms.options == new.plan.terms.options
        with pytest.raises(PlanRefused, match="option timestamp none, not now"):
            again(story, asked, {**to, "timestamp": "now"})
        for theirs, said in (
            ({**to, "split": "evil:H"}, "option split evil:H, not none"),
            ({"topic": "elsewhere"}, f"option topic elsewhere, not {target.name}"),
        ):
            written(story, OffsetPlan(replace(plan.terms, options=theirs), plan.account))
            with pytest.raises(PlanRefused, match=said):
                again(story, asked, to)
    finally:
        target.discard()


def test_a_handler_at_another_path_is_the_same_if_its_code_is(story: Story) -> None:
    plan = story.write_plan(20)
    handler = LoadedHandler("h.py:Remembers", Remembers(), "/home/ana/h.py:Remembers")
    there = replace(plan.terms, handler="/handlers/h.py:Remembers", handler_code=handler.code)
    written(story, OffsetPlan(there, plan.account))
    assert isinstance(again(story, request(story, handler=handler)), Prepared)
    changed_since = replace(there, handler_code="sha256:0")
    written(story, OffsetPlan(changed_since, plan.account))
    with pytest.raises(PlanRefused, match=r"handler /handlers/h\.py:Remembers, not /home/ana"):
        again(story, request(story, handler=handler))


def test_a_drain_that_was_undone_is_refused(story: Story) -> None:
    written(story, ended(story.write_plan(MESSAGES), kind=EventKind.UNDONE))
    with pytest.raises(PlanRefused, match="a drain that was undone by ana@db1"):
        again(story)


def test_a_plan_is_never_among_the_records_of_its_drain(story: Story) -> None:
    letters = replace(LETTERS, dead_letter_topic="letters")
    for topic, failures in ((story.topic.name, FailureSettings()), ("letters", letters)):
        asked = request(story, plan_path=f"kafka://{topic}/a", failures=failures)
        with pytest.raises(PlanRefused, match="would be among the records of this drain"):
            again(story, asked)
