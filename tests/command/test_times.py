"""A set of records by their times: ``--from @TIME --until @TIME --no-commit``, in any order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from command.process import Command
from kafka.topic import Topic

EIGHT_MS = 1_772_352_000_000  # 2026-03-01T08:00Z
HOUR = ("--from", "@2026-03-01T08:00Z", "--until", "@2026-03-01T09:00Z")
AGAIN = (*HOUR, "--no-commit")
IN, BEFORE, AFTER = 60_000, -60_000, 3_600_000  # milliseconds from eight
OUTSIDE = "a time outside --from and --until"


def dated(
    command: Command,
    times_ms: Sequence[int],
    *,
    together: int = 0,
    config: dict[str, str] | None = None,
) -> Topic:
    """A topic with a message for each time, on a document of its own; each so many of them in a
    transaction, whose marker has the broker's time."""
    topic = command.topic([], config=config)
    conf = {"bootstrap.servers": topic.bootstrap, "log_level": 0}
    producer = Producer({**conf, "transactional.id": topic.name} if together else conf)
    if together:
        producer.init_transactions(60)
    for number, ms in enumerate(times_ms):
        if together and number % together == 0:
            producer.begin_transaction()
        producer.produce(topic.name, f'["{number}"]', timestamp=EIGHT_MS + ms)
        if together and number % together == together - 1:
            producer.commit_transaction(60)
    assert producer.flush(60) == 0
    return topic


def handled(command: Command) -> list[int]:
    """Numbers of the messages that were handled, by their sub-key."""
    done = [line.keys for line in command.record.lines() if line.mark == "done"]
    return sorted({int(key) for keys in done for key in keys or ()})


def test_all_records_of_a_range_of_times_are_handled_in_whatever_order_they_lie(
    command: Command,
) -> None:
    topic = dated(command, [BEFORE, IN, BEFORE, IN, AFTER, AFTER - 1, AFTER + 1, IN])
    topic.stamp([("k", EIGHT_MS + BEFORE)], b"!ValueError")  # It stops no drain.
    topic.stamp([("k", EIGHT_MS)], b'["8"]')
    what = [*command.what(topic), *AGAIN]
    looked = command("inspect", *what, "-o", "json").answer
    dry = command("run", *what, *command.options(), "--dry-run", "-o", "json").answer

    found = command("run", *what, *command.options(), "--yes", "-o", "json")

    assert handled(command) == [1, 3, 5, 7, 8]
    assert found.answer["skipped_for"] == {OUTSIDE: 4}
    account = found.answer["sub_messages"]
    assert [account[each] for each in ("read", "done", "skipped", "pending")] == [9, 5, 4, 0]
    assert "from @2026-03-01T08:00:00+00:00 until @2026-03-01T09:00:00+00:00" in found.err
    assert "it reads 9 offsets, up to the end of the log" in found.err
    assert any("it reads 9 offsets" in check for check in dry["checks"])
    assert (looked["messages"], looked["offsets"]) == (5, 9)
    assert command.committed(topic) == {0: None}


@pytest.mark.long
def test_markers_of_transactions_end_no_range_of_times(command: Command) -> None:
    """Markers have the broker's time, which is later than those of mirrored records."""
    topic = dated(command, [n * 1000 for n in range(100)], together=10)
    minute = ("--from", "@2026-03-01T08:00Z", "--until", "@2026-03-01T08:01Z", "--no-commit")

    found = command("run", *command.what(topic), *command.options(), *minute, "--yes", "-o", "json")

    assert handled(command) == [*range(60)]
    assert found.answer["skipped_for"] == {OUTSIDE: 40}


@pytest.mark.long
def test_a_killed_drain_of_times_goes_on_with_the_same_times(command: Command) -> None:
    topic = dated(command, [IN if n % 2 else BEFORE for n in range(40)])
    pauses = command.options(pause_ms=300)
    running = command.start("run", *command.what(topic), *AGAIN, *pauses, "--yes", "-c", "4")
    command.wait_for(running, "done", 4)
    running.kill()
    plan = str(next(command.folder.glob("*.plan.json")))
    shown = command("plan", "show", plan)

    found = command(*command.resume_of(plan), *command.options(), "-o", "json")

    assert handled(command) == [*range(1, 40, 2)]
    assert found.answer["skipped_for"] == {OUTSIDE: 19}  # the first offset is that of an hour
    assert found.answer["partitions"]["0"]["watermark"] == 40
    assert "until @2026-03-01T09:00:00+00:00" in shown.out + shown.err


@pytest.mark.long
def test_a_drain_that_commits_ends_at_a_time_only_where_brokers_set_times(
    command: Command,
) -> None:
    topic = dated(command, [IN, BEFORE])
    what = [*command.options(), "--from", "earliest", "--yes", "--until"]

    refused = command("run", *command.what(topic), *what, "@2026-03-01T09:00Z", code=3)

    from_time = command.drain(topic, "--from", "@2026-03-01T08:00Z", "--dry-run")
    assert "earlier records that follow it are handled, too" in from_time.out
    assert "producers set the times" in refused.error
    assert "--no-commit" in refused.hint
    estimated = command(
        *("estimate", *command.what(topic), "--from", "earliest", "--latency", "1ms"),
        *("--until", "@2026-03-01T09:00Z"),
    )
    assert "a drain refuses that" in estimated.err + estimated.out
    of_broker = dated(command, [IN, BEFORE], config={"message.timestamp.type": "LogAppendTime"})
    done = command("run", *command.what(of_broker), *what, "@2100-01-01", "-o", "json")
    assert (done.answer["messages"]["done"], command.committed(of_broker)) == (2, {0: 2})
    assert "it ends at the first offset of @2100-01-01" in done.err or "@2099" in done.err


@pytest.mark.long
def test_on_spark_a_range_of_times_has_the_same_records(command: Command) -> None:
    topic = dated(command, [IN if n % 3 else BEFORE for n in range(60)])
    spark = ("--engine", "spark", "--master", "local[2]", "-o", "json")

    found = command("run", *command.what(topic), *command.options(), *AGAIN, "--yes", *spark)

    assert handled(command) == [n for n in range(60) if n % 3]
    assert found.answer["skipped_for"] == {OUTSIDE: 19}
    words = ["run", *command.what(topic, "count"), *AGAIN, "--plan", "c.plan.json", "--yes", *spark]
    assert command(*words).answer["sub_messages"]["skipped"] == 19
