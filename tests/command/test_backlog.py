"""Choice of a backlog and its order: --from, --until, --partition, --tune order."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from command.conftest import distinct
from command.process import Command

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def minute(number: int) -> str:
    return f"@{(NOON + timedelta(minutes=number)).isoformat()}"


def offsets(command: Command) -> list[int]:
    return sorted(offset for _, offset, _ in command.record.done())


def test_the_backlog_is_from_one_place_until_before_another_in_the_order_given(
    command: Command,
) -> None:
    timed = command.topic()  # offset n was written n minutes after noon
    minutes_ms = [round(NOON.timestamp() + 60 * n) * 1000 for n in range(10)]
    timed.stamp([("k", at_ms) for at_ms in minutes_ms], b'["document"]')
    command.cluster.alter_committed(command.group(timed), timed.name, {0: 2})
    more = ("--tune", "order=none", "-c", "5")
    running = command.begin(timed, "--from", minute(4), "--until", "9", *more, gate=command.gate)
    command.wait_for(running, "begun", 5)  # all have one message key and one sub-key
    command.gate.touch()
    assert "--from skips offsets: 2 of partition 0" in running.ends(0).err
    assert offsets(command) == [4, 5, 6, 7, 8]
    assert command.committed(timed) == {0: 9}


def test_an_open_transaction_ends_the_backlog_and_is_reported(command: Command) -> None:
    topic = command.topic(distinct(2))
    topic.transact(['["aborted"]'] * 2, commit=False)
    producer = topic.open_transaction(['["undecided"]'] * 3)
    topic.produce(distinct(47))  # of others, and behind it
    what = ["-b", topic.bootstrap, "--topic", topic.name, "--group", command.group(topic)]

    looked = command("inspect", *what)
    drained = command.drain(topic, "-o", "json")
    again = command.drain(topic, "--from", "committed")
    producer.abort_transaction(15)

    (blocking,) = drained.answer["open_transactions"]
    assert (blocking["partition"], blocking["offset"], blocking["offsets"]) == (0, 5, 50)
    assert "warning: an open transaction blocks 50 offsets" in looked.err
    assert "warning: an open transaction blocks 50 offsets" in drained.err  # the preview
    assert "Nothing to drain" in again.out
    assert re.search("excluded +50 offsets behind an open transaction", again.out)
    assert command.committed(topic) == {0: 5}
