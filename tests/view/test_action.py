from __future__ import annotations

from dataclasses import replace

from drainer.engine.action import PartitionAction
from drainer.view.action import show_plan_of_action

from . import samples


def shown(count: int = 1, **changes: object) -> str:
    terminal, out, err = samples.terminal()
    show_plan_of_action(terminal, samples.action(count, **changes))
    assert out.getvalue() == ""
    return err.getvalue()


def test_all_that_a_person_should_know_before_saying_yes() -> None:
    text = shown()
    assert text.startswith("Drain orders for group reindexer: 10,000 offsets in 1 partition\n")
    for fact in (
        "[1000, 11000)",
        "kafka-1.prod:9092",
        "(no members)",
        "reindex.py:Reindex",
        "256 MiB",
        "read_committed",
        "✓ group reindexer is empty",
        "drainer plan undo /var/lib/drainer/orders.reindexer.plan",
    ):
        assert fact in text


def test_a_group_that_does_not_exist_is_not_called_dead() -> None:
    text = shown(group_state="dead")
    assert "reindexer  (no such group yet)" in text
    assert "dead" not in text


def test_warnings_come_first() -> None:
    text = shown(warnings=("1,000 offsets of partition [3] are passed over",))
    assert text.startswith("warning: 1,000 offsets of partition [3] are passed over\n\nDrain")


def test_quiet_shows_the_warnings_only() -> None:
    terminal, _, err = samples.terminal(quiet=True)
    show_plan_of_action(terminal, samples.action(warnings=("careful",)))
    assert err.getvalue() == "warning: careful\n"


def test_many_partitions_collapse_to_the_largest_and_a_total() -> None:
    text = shown(200)
    rows = [line.split() for line in text.splitlines() if "[1000, " in line]
    assert [row[0] for row in rows] == [str(n) for n in range(188, 200)]
    assert "188 more" in text
    assert "total" in text
    assert "201,000,000" in text
    assert len(text.splitlines()) < 40


def test_a_resumed_drain_says_what_is_finished_already() -> None:
    part = PartitionAction(0, 1_000, 9_000, 4_000, finished=3_210)
    text = shown(resumes=True, partitions=(part,))
    assert text.startswith("Resume the drain of orders for group reindexer")
    assert "3,210 messages finished already" in text


def test_offsets_passed_over_and_a_group_without_offset_are_told() -> None:
    part = PartitionAction(0, 1_000, 9_000, None, leaps=1_234)
    text = shown(partitions=(part, replace(part, partition=1, start=9_000, leaps=0)))
    assert "passed over" in text
    assert "1,234" in text
    assert "no offset" in text
    assert "nothing to do" in text


def test_no_partitions_is_no_crash() -> None:
    assert "no partitions" in shown(0)
