"""``drainer limits`` as a person runs it: wrong options, and one whole run."""

from __future__ import annotations

import re
import signal

import pytest

from command.process import Command
from core.limit_samples import measured
from drainer.kafka.cluster import Cluster
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import create_test_topic, find_test_topics, new_topic_name
from drainer.limits.search.boundary import from_json
from kafka.topic import eventually

PATIENCE_S = 180.0


def test_cleanup_lists_by_name_needs_a_confirmation_and_removes(command: Command) -> None:
    name = new_topic_name()
    create_test_topic(command.cluster, name, 1, 1024)

    outcome = command("limits", "cleanup", "-b", command.bootstrap, code=3)
    assert f"topic         {name}" in outcome.err
    assert "--yes" in outcome.hint
    assert name in find_test_topics(command.cluster)

    answer = command("limits", "cleanup", "-b", command.bootstrap, "--yes", "-o", "json").answer
    assert name in answer["removed"]
    eventually(lambda: name not in find_test_topics(command.cluster), "it is gone")


def test_each_combination_of_what_is_swept_is_measured_and_shown(command: Command) -> None:
    out = command.folder / "limits.json"
    for groups in (1, 5):
        LimitsFile(out).write(
            measured({100: 1_000.0}, cluster_id=command.cluster.cluster_id, groups=groups)
        )
    words = ("--bytes", "100", "--max-rate", "100MB/s", "--consumer-groups", "1,5")

    shown = command("limits", "-b", command.bootstrap, *words, "--report", "limits.html").out
    outcome = command("limits", "-b", command.bootstrap, *words, "-o", "json")

    found = from_json(outcome.answer["limits"])
    assert [limits.settings.consumer_groups for limits in found] == [1, 5]
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    # At 80%: what a drain may write, and read.
    assert [
        row for row in rows if row.startswith("100 B 1 group reading 1,000 ") and " 800 800 " in row
    ]
    assert [
        row
        for row in rows
        if row.startswith("100 B 5 groups reading 1,000 ") and " 800 4,000 " in row
    ]
    assert (command.folder / "limits.html").read_text().count("<svg") == 2
    other = command("limits", "-b", command.bootstrap, *words[:4], "--consumer-groups", "1", code=3)
    assert "consumer_groups was 5, and is 1" in other.error


@pytest.mark.long
def test_a_run_that_is_stopped_leaves_nothing_behind_and_is_resumed(
    command: Command, cluster: Cluster
) -> None:
    words = (
        *("limits", "-b", command.bootstrap, "--shared-cluster", "--yes", "--master", "local[2]"),
        *("--bytes", "1KiB", "--consumer-groups", "1", "--partitions", "2"),
        *("--max-rate", "0.2MB/s", "--max-producers", "4", "--trials", "2"),
        *("--warm-up", "1s", "--window", "6s"),
        *("--report", "limits.html"),
    )
    running = command.start(*words)
    eventually(
        lambda: "producer" in _after_begin(running.err) or not running.running,
        "a trial was made",
        PATIENCE_S,
    )
    (topic,) = set(re.findall(r"drainer\.limits\.\d{8}-\d{6}-[0-9a-f]{6}(?= )", running.err))
    assert topic in find_test_topics(command.cluster)
    running.signal(signal.SIGINT)
    stopped = running.ends(4, PATIENCE_S)

    assert (
        "stopped by SIGINT: all traffic has ended, and limits.json keeps 1 trial" in stopped.error
    )
    assert "Repeat the command" in stopped.hint
    eventually(lambda: topic not in find_test_topics(command.cluster), "it is gone")
    assert command.left_behind == ["limits.json"]
    (kept,) = LimitsFile(command.folder / "limits.json").load()
    assert len(kept.trials) == 1

    outcome = command.start(*words, "-o", "json").ends(0, PATIENCE_S)

    (found,) = from_json(outcome.answer["limits"])
    assert not found.missing
    assert found.trials[0] == kept.trials[0]
    assert len(found.trials) == 2
    assert all(trial.point.bytes_per_s <= 0.2e6 * 1.001 for trial in found.trials)
    assert LimitsFile(command.folder / "limits.json").load() == (found,)
    eventually(
        lambda: not [name for name in find_test_topics(command.cluster) if name >= topic],
        "nothing is left",
    )
    assert command.left_behind == ["limits.html", "limits.json"]

    again = command(*words)  # all is known: nothing is measured any more
    assert "all boundaries, from 2 trials" in again.err
    assert again.took_s < PATIENCE_S / 2


def _after_begin(output: str) -> str:
    return output.partition("result")[2]
