"""A drain whose plan is gone goes on from what the group's commits tell."""

from __future__ import annotations

from itertools import pairwise

from command.conftest import MakeTopic, committed
from command.process import FAST, Command, Running
from command.record import every_place
from drainer.core.handover import decode, encode
from drainer.core.progress import Range
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic, eventually

STUCK = '["stuck", "a"]'
DISTINCT = 60


def told(cluster: Cluster, command: Command, topic: Topic) -> tuple[Range, ...]:
    """The finished ranges beside the committed offset 0; none before there is a commit."""
    commit = cluster.commits(command.group(topic), topic.name, [0])[0]
    if commit is None:
        return ()
    assert commit.offset == 0
    found = decode(0, commit.metadata)
    assert found is not None
    return found


def messages() -> list[str]:
    """One that is stuck with a part of it done, one behind that part, and others."""
    return [STUCK, '["a"]', *(f'["x{n}", "y{n}"]' for n in range(DISTINCT))]


def begin_stuck(command: Command, topic: Topic, pause_ms: int = 0) -> Running:
    return command.begin(topic, *FAST, gate=command.gate, gated="stuck", pause_ms=pause_ms)


def run_again(command: Command, topic: Topic, code: int = 0) -> str:
    words = ["run", *command.what(topic), "--yes", *command.options()]
    return command(*words, code=code).err


def test_a_stuck_message_does_not_keep_the_others_from_being_told(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(messages())
    running = begin_stuck(command, topic, pause_ms=20)
    seen: list[tuple[Range, ...]] = []

    def all_told() -> bool:
        found = told(cluster, command, topic)
        if found and (not seen or found != seen[-1]):
            seen.append(found)
        return found == ((2, 2 + DISTINCT),)

    eventually(lambda: all_told() or not running.running, "all but two are told", 30)
    assert seen
    for before, after in pairwise(seen):
        assert all(any(a <= c and d <= b for a, b in after) for c, d in before)
    command.gate.touch()
    running.ends(0)
    last = cluster.commits(command.group(topic), topic.name, [0])[0]
    assert last is not None
    assert (last.offset, last.metadata) == (2 + DISTINCT, "")


def test_without_its_plan_a_killed_drain_repeats_only_what_it_must(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(messages())
    running = begin_stuck(command, topic)
    eventually(
        lambda: told(cluster, command, topic) == ((2, 2 + DISTINCT),) or not running.running,
        "all but two are told",
        30,
    )
    running.kill()
    for path in command.folder.iterdir():
        path.unlink()
    refused = command("resume", str(command.plan(topic)), "--yes", *command.options(), code=3)
    assert "metadata" in refused.hint

    said = run_again(command, topic)

    assert f"{DISTINCT} offsets above 0 are finished already by the commit's metadata" in said
    assert set(command.record.done()) == every_place(messages())
    assert set(command.record.repeats()) == {(0, 0, 0), (0, 0, 1), (0, 1, 0)}
    command.record.check_order()
    assert committed(cluster, topic) == {0: 2 + DISTINCT}


def test_a_group_that_parallel_consumer_left_is_picked_up(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(messages())
    finished = {1, 2, 4, 8}
    metadata = {0: "bAAJFgEA"}  # as it writes oxxoxooox
    cluster.alter_committed(command.group(topic), topic.name, {0: 0}, metadata=metadata)

    said = run_again(command, topic)

    assert "4 offsets above 0 are finished already" in said
    left = {place for place in every_place(messages()) if place[1] not in finished}
    assert set(command.record.done()) == left
    assert committed(cluster, topic) == {0: 2 + DISTINCT}


def test_unknown_metadata_is_told_of_and_left_alone(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(messages())
    group = command.group(topic)
    cluster.alter_committed(group, topic.name, {0: 1}, metadata={0: "ours: do not touch"})

    said = run_again(command, topic)

    assert "it is left alone" in said
    commit = cluster.commits(group, topic.name, [0])[0]
    assert commit is not None
    assert (commit.offset, commit.metadata) == (2 + DISTINCT, "ours: do not touch")


def test_a_dry_run_says_what_is_finished_already(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(messages())
    group = command.group(topic)
    text = encode(2, [(10, 12)])
    cluster.alter_committed(group, topic.name, {0: 2}, metadata={0: text})

    answer = command("run", *command.what(topic), "--dry-run", "--json").answer

    assert any("2 offsets above 2 are finished already" in check for check in answer["checks"])
    commit = cluster.commits(group, topic.name, [0])[0]
    assert commit is not None
    assert (commit.offset, commit.metadata) == (2, text)
