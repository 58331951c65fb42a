"""What becomes of sub-messages that fail: tried again, skipped, parked, or the end of the drain."""

from __future__ import annotations

import signal
from typing import Any

from command.conftest import MakeTopic, committed, distinct
from command.process import Command
from command.record import every_place
from drainer.kafka.cluster import Cluster

SOON = ("--retry-delay", "1ms")
ONE_BAD_LANE = ['["a", "bad"]', '["bad", "b"]', '["bad"]', '["a", "b"]']


def accounts(counts: dict[str, int], **expected: int) -> None:
    """These are as expected, and the whole adds up."""
    assert {name: counts[name] for name in expected} == expected
    assert counts["read"] == sum(
        counts[n] for n in ("done", "dead", "failed", "skipped", "pending")
    )


def test_what_fails_is_tried_again_before_its_lane_goes_on(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(ONE_BAD_LANE)
    outcome = command.drain(topic, *SOON, "--json", bad="bad", times=2)
    assert command.record.attempts(0, 1) == [1, 2, 3]
    assert command.record.attempts(2) == [1, 2, 3]
    command.record.check_order()
    answer = outcome.answer
    assert (answer["status"], answer["exit_code"]) == ("done", 0)
    assert (answer["failures"], answer["retries"], answer["dead_letter_topic"]) == (6, 6, None)
    assert answer["errors"] == [{"error": "LookupError: the document is locked", "count": 6}]
    accounts(answer["sub_messages"], read=7, done=7)
    assert "6 failed attempts, 6 retries" in outcome.err
    assert "6 x LookupError: the document is locked" in outcome.err
    assert committed(cluster, topic) == {0: 4}


def test_without_retries_the_first_failure_halts_the_drain(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(ONE_BAD_LANE)
    outcome = command.drain(topic, "--retries", "0", "--json", code=5, bad="bad")
    assert command.record.attempts(0, 1) == [1]
    assert f"{topic.name}/0/0[1]" in outcome.error
    assert "attempts" not in outcome.error
    assert (outcome.answer["failures"], outcome.answer["retries"]) == (1, 0)


def test_a_parked_lane_waits_for_the_resume_and_all_others_are_drained(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(ONE_BAD_LANE)
    more = ("--retries", "0", "--on-failure", "park", "--json")
    outcome = command.drain(topic, *more, code=5, bad="bad")
    answer = outcome.answer
    assert (answer["status"], answer["parked_lanes"]) == ("halted", 1)
    (lane,) = answer["parked_first"]
    assert (lane["key"], lane["place"]) == ("'bad'", f"{topic.name}/0/0[1]")
    assert lane["error"].startswith("LookupError")
    assert f"'bad' at {topic.name}/0/0[1]: LookupError" in outcome.err
    accounts(answer["sub_messages"], read=7, done=4, pending=3)
    assert "parked" in outcome.error
    assert committed(cluster, topic) == {0: 0}
    assert len(command.record.begun()) == 5

    again = command.resume(topic, "--json", code=5, bad="bad")
    assert again.answer["parked_lanes"] == 1
    finished = command.resume(topic, "--json")
    accounts(finished.answer["sub_messages"], read=7, done=7)
    assert sorted(command.record.done()) == sorted(every_place(ONE_BAD_LANE))
    command.record.check_order()
    assert committed(cluster, topic) == {0: 4}


def test_the_plan_keeps_the_policy_and_a_resume_may_change_it(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(ONE_BAD_LANE)
    more = (*SOON, "--retries", "1", "--on-failure", "park")
    command.drain(topic, *more, code=5, bad="bad")
    kept = command("plan", "show", str(command.plan(topic)))
    assert "1, after 1ms" in kept.err
    assert "park its lane" in kept.err
    command.resume(topic, code=5, bad="bad")
    assert command.record.attempts(0, 1) == [1, 2] * 2
    changed = ("--retries", "0", "--on-failure", "skip", "--json")
    resumed = command.resume(topic, *changed, "--no-breaker", code=6, bad="bad")
    accounts(resumed.answer["sub_messages"], failed=3)
    assert command.record.attempts(0, 1) == [1, 2, 1, 2, 1]
    failures = command("plan", "show", str(command.plan(topic)), "--json").answer["failures"]
    assert (failures["retries"], failures["on_failure"]) == (0, "skip")
    assert failures["retry_delay_s"] == 0.001


def test_ctrl_c_does_not_wait_for_what_waits_to_be_tried_again(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(ONE_BAD_LANE)
    running = command.begin(topic, "--retry-delay", "1h", "--retry-max-delay", "1h", bad="bad")
    command.wait_for(running, "done", 4)
    command.wait_for(running, "failed", 1)
    running.signal(signal.SIGINT)
    outcome = running.ends(4)
    command(*outcome.resume_words[:2], "--yes", *command.options())
    assert sorted(command.record.done()) == sorted(every_place(ONE_BAD_LANE))
    command.record.check_order()


# Limits


def many(count: int, bad_every: int) -> tuple[list[str], str]:
    """Messages on lanes of their own, and the sub-keys of those that are bad."""
    return distinct(count), ",".join(str(n) for n in range(0, count, bad_every))


def test_too_many_given_up_halt_the_drain(command: Command, make_topic: MakeTopic) -> None:
    values, bad = many(100, 10)
    topic = make_topic(values)
    more = ("--retries", "0", "--on-failure", "skip", "-c", "1", "--json")
    outcome = command.drain(topic, *more, "--max-dead", "3", code=5, bad=bad)
    assert "more than --max-dead 3" in outcome.error
    accounts(outcome.answer["sub_messages"], failed=3)
    again = command.resume(topic, "--json", code=5, bad=bad)
    assert "4 sub-messages were given up, in all runs" in again.error
    finished = command.resume(topic, "--max-dead", "none", "--json", code=6, bad=bad)
    accounts(finished.answer["sub_messages"], done=90, failed=10)


def test_an_outage_is_waited_out_and_nothing_is_given_up(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(400))
    more = ("--on-failure", "skip", "-c", "10", "--json")
    running = command.begin(topic, *more, up=command.gate, down_from=100)
    running.says("the downstream is failing")
    begun = len(command.record.begun())
    assert begun < 400
    assert running.running
    command.gate.touch()
    outcome = running.ends(0)
    assert "trouble over" in outcome.err
    accounts(outcome.answer["sub_messages"], done=400, failed=0)
    assert outcome.answer["outages"] == 1
    assert committed(cluster, topic) == {0: 400}
    command.record.check_order()


# Where the options come from

EXPECTED: dict[str, Any] = {
    "retries": 7,
    "retry_delay_s": 0.3,
    "retry_max_delay_s": 60.0,
    "timeout_s": 0.0,
    "on_failure": "dead-letter",
    "after_dead": "park",
    "dead_letter_topic": "the-dead",
    "max_dead": "2.5%",
    "max_consecutive": 9,
    "breaker": False,
    "max_outage_s": 120.0,
    "max_doubt_s": 15.0,
    "rate": 5.0,
}
OPTIONS = {
    "retries": "7",
    "retry-delay": "300ms",
    "retry-max-delay": "1m",
    "timeout": "0",
    "on-failure": "dead-letter",
    "after-dead": "park",
    "dead-letter-topic": "the-dead",
    "max-dead": "2.5%",
    "max-consecutive": "9",
    "max-outage": "2m",
    "max-doubt": "15s",
    "rate": "300/m",
}


def test_the_policy_comes_from_flags_variables_and_profiles(
    command: Command, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(1))
    what = ["run", *command.what(topic), "--from", "earliest", "--dry-run", "--json"]
    flags = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    by_flag = command(*what, *flags, "--no-breaker")
    assert by_flag.answer["failures"] == EXPECTED
    for words in ("2.5% given up", "9 given up in a row", "5.0/s", "no timeout", "the-dead, which"):
        assert words in by_flag.err
    variables = {f"DRAINER_{n.upper().replace('-', '_')}": value for n, value in OPTIONS.items()}
    by_variable = command(*what, env=variables | {"DRAINER_BREAKER": "false"})
    assert by_variable.answer["failures"] == EXPECTED
    profile = "".join(f'{name} = "{value}"\n' for name, value in OPTIONS.items())
    (command.folder / "drainer.toml").write_text(f"{profile}breaker = false\n")
    named = ("--config", "drainer.toml", *what)
    assert command(*named).answer["failures"] == EXPECTED
    assert command(*named, "--retries", "1").answer["failures"]["retries"] == 1


def test_a_value_that_makes_no_sense_is_a_usage_error_that_names_the_option(
    command: Command,
) -> None:
    nowhere = ["--topic", "t", "--group", "g", "--handler", "count", "-b", "127.0.0.1:1"]
    started = [
        (command.start("run", *nowhere, *words), words[0], hinted)
        for words, hinted in (
            (["--retries", "-1"], False),
            (["--on-failure", "explode"], False),
            (["--max-dead", "150%"], True),
            (["--dead-letter-topic", "dead", "--on-failure", "skip"], True),
        )
    ]
    for running, option, hinted in started:
        outcome = running.ends(2)
        assert option in outcome.err
        assert outcome.out == ""
        if hinted:
            assert option in outcome.error
            assert outcome.hint
