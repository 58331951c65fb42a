"""``drainer limits`` as a person runs it: what is asked wrongly, and one whole run."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from command.process import Command
from drainer.kafka.cluster import Cluster
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import create_test_topic, new_topic_name, own_things
from drainer.limits.search.boundary import Limits
from kafka.topic import eventually
from operations.modelled import ModelledCluster, run

NOWHERE = ("-b", "127.0.0.1:1")
PATIENCE_S = 180.0


def limits_at(path: Path, **changes: float) -> Limits:
    found = run(ModelledCluster(**changes), path)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--bytes", "1KiB,,2KiB"), "--bytes '1KiB,,2KiB' is not a list"),
        (("--bytes", "big"), "'big' is not a size"),
        (("--bytes", "0"), "--bytes 0 is no size of a message"),
        (("--bytes", "1KiB,1024"), "--bytes has a value twice"),
        (("--values", "1,5"), "--values are of what --vary names"),
        (("--vary", "consumer-groups"), "--vary consumer-groups needs --values"),
        (("--vary", "partitions", "--values", "0,5"), "--values '0' is no number from 1 on"),
        (("--vary", "compression", "--values", "zip"), "--values 'zip' is no compression"),
        (
            ("--vary", "partitions", "--values", "1,5", "--bytes", "1KiB,2KiB"),
            "is for messages of one size",
        ),
        (("--precision", "0"), "--precision '0' is not a share"),
        (("--precision", "0.1%"), "--precision 0.1% is out of reach"),
        (("--safe-share", "120%"), "--safe-share '120%' is not a share"),
        (("--window", "2s"), "--window 2s is too short"),
        (("--pace", "0"), "--pace '0' sends nothing"),
        (("--max-mb-per-s", "inf"), "--max-mb-per-s inf bounds nothing"),
        (("--master", "sc://here"), "Spark Connect"),
        (("--spark-conf", "spark.speculation=true"), "spark.speculation"),
    ],
)
def test_what_is_asked_wrongly_is_told_before_anything_is_looked_at(
    command: Command, words: tuple[str, ...], told: str
) -> None:
    outcome = command("limits", *NOWHERE, *words, code=2)

    assert told in outcome.error
    assert outcome.hint
    assert command.left_behind == []


def test_other_files_are_never_written_over(command: Command) -> None:
    for option, name in (("--png", "a.png"), ("--csv", "a.csv"), ("--report", "a.html")):
        path = command.folder / name
        path.write_text("mine")
        outcome = command("limits", *NOWHERE, option, name, code=3)
        assert name in outcome.error
        assert option in outcome.hint
        assert path.read_text() == "mine"
    (command.folder / "limits.json").write_text('{"mine": 1}')
    outcome = command("limits", "-b", command.bootstrap, code=3)
    assert "not limits" in outcome.error
    assert (command.folder / "limits.json").read_text() == '{"mine": 1}'


def test_two_findings_are_compared(command: Command) -> None:
    before, after = command.folder / "a.json", command.folder / "b.json"
    limits_at(before)
    limits_at(after, clients_send=5_000.0)

    outcome = command("limits", "compare", "a.json", "b.json")
    assert "moved by" in outcome.err
    assert re.search(r"10 KiB\s+3,8\d\d/s\s+3,8\d\d/s", outcome.err)
    assert "a lower bound is among them" in outcome.err
    answer = command("limits", "compare", "a.json", "b.json", "--json").answer
    assert [change["value"] for change in answer["changes"]] == [100, 1024, 10_240]


def test_cleanup_lists_by_name_asks_and_removes(command: Command, cluster: Cluster) -> None:
    name = new_topic_name()
    create_test_topic(cluster, name, 1, 1024)

    outcome = command("limits", "cleanup", "-b", command.bootstrap, code=3)
    assert f"topic         {name}" in outcome.err
    assert "--yes" in outcome.hint
    assert name in own_things(cluster).topics

    answer = command("limits", "cleanup", "-b", command.bootstrap, "--yes", "--json").answer
    assert name in answer["removed"]["topics"]
    eventually(lambda: name not in own_things(cluster).topics, "it is gone")


@pytest.mark.long
def test_a_run_that_is_stopped_leaves_nothing_behind_and_is_gone_on_with(
    command: Command, cluster: Cluster
) -> None:
    words = (
        *("limits", "-b", command.bootstrap, "--shared-cluster", "--yes", "--master", "local[2]"),
        *("--bytes", "1KiB", "--consumer-groups", "1", "--partitions", "2"),
        *("--max-mb-per-s", "0.2", "--max-producers", "4", "--trials", "2"),
        *("--warm-up", "1s", "--window", "6s", "--cool-down", "10s"),
        *("--report", "limits.html", "--png", "limits.png", "--csv", "trials.csv"),
    )
    running = command.start(*words)
    eventually(
        lambda: "producer" in _after_begin(running.err) or not running.running,
        "a trial was made",
        PATIENCE_S,
    )
    (topic,) = set(re.findall(r"drainer\.limits\.\d{8}-\d{6}-[0-9a-f]{6}(?= )", running.err))
    assert topic in own_things(cluster).topics
    running.signal(signal.SIGINT)
    stopped = running.ends(4, PATIENCE_S)

    assert "stopped by SIGINT: no traffic runs any more, and 1 trial is kept" in stopped.error
    assert "Repeat the command" in stopped.hint
    eventually(lambda: topic not in own_things(cluster).topics, "it is gone")
    assert command.left_behind == ["limits.json"]
    kept = LimitsFile(command.folder / "limits.json").load()
    assert len(kept.trials) == 1

    outcome = command.start(*words, "--json").ends(0, PATIENCE_S)

    found = Limits.from_json(outcome.answer["limits"])
    assert found.complete
    assert found.trials[0] == kept.trials[0]
    assert len(found.trials) == 2
    assert all(trial.point.bytes_per_s <= 0.2e6 * 1.001 for trial in found.trials)
    assert LimitsFile(command.folder / "limits.json").load() == found
    eventually(
        lambda: not [name for name in own_things(cluster).topics if name >= topic],
        "nothing is left",
    )
    assert command.left_behind == ["limits.html", "limits.json", "limits.png", "trials.csv"]

    again = command(*words)  # all is known: nothing is asked of the brokers any more
    assert "all of it, from 2 trials" in again.err
    assert again.took_s < PATIENCE_S / 2


def _after_begin(said: str) -> str:
    return said.partition("result")[2]
