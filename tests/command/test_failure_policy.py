"""Outcomes of sub-messages that fail: tried again, skipped, parked, or the end of the drain."""

from __future__ import annotations

from command.conftest import distinct
from command.process import Command

SOON = ("--tune", "retry-delay=1ms")
ONE_BAD_LANE = ['["a", "bad"]', '["bad", "b"]', '["bad"]', '["a", "b"]']


def accounts(counts: dict[str, int], **expected: int) -> None:
    """Ensure that these are as expected, and the whole adds up."""
    assert {name: counts[name] for name in expected} == expected
    assert counts["read"] == sum(
        counts[n] for n in ("done", "dead", "failed", "skipped", "pending")
    )


def test_a_parked_lane_waits_and_the_plan_keeps_the_policy_until_a_resume_changes_it(
    command: Command,
) -> None:
    topic = command.topic(ONE_BAD_LANE)
    more = (*SOON, "--retries", "1", "--on-failure", "park", "-o", "json")
    outcome = command.drain(topic, *more, code=5, bad="bad")
    answer = outcome.answer
    assert (answer["status"], answer["parked_lanes"]) == ("halted", 1)
    (lane,) = answer["parked_first"]
    assert (lane["key"], lane["place"]) == ("'bad'", f"{topic.name}/0/0[1]")
    accounts(answer["sub_messages"], read=7, done=4, pending=3)
    assert command.committed(topic) == {0: 0}
    kept = command("plan", "show", str(command.plan(topic)))
    assert "1, after 1ms" in kept.out
    assert "park its lane" in kept.out

    command.resume(topic, code=5, bad="bad")
    assert command.record.attempts(0, 1) == [1, 2] * 2
    changed = ("--retries", "0", "--on-failure", "skip", "--tune", "breaker=off", "-o", "json")
    resumed = command.resume(topic, *changed, code=6, bad="bad")
    accounts(resumed.answer["sub_messages"], done=4, failed=3)
    command.record.check_order()
    assert command.committed(topic) == {0: 4}


# Limits


def test_an_outage_is_waited_out_and_nothing_is_given_up(command: Command) -> None:
    topic = command.topic(distinct(400))
    more = ("--on-failure", "skip", "-c", "10", "-o", "json")
    running = command.begin(topic, *more, up=command.gate, down_from=100)
    running.prints("outage since ")
    begun = len(command.record.begun())
    assert begun < 400
    assert running.running
    command.gate.touch()
    outcome = running.ends(0)
    assert "trouble over" in outcome.err
    accounts(outcome.answer["sub_messages"], done=400, failed=0)
    assert outcome.answer["outages"] == 1
    assert command.committed(topic) == {0: 400}
    command.record.check_order()
