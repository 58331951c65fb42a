"""A plan that outlives the machine: in a topic or a bucket, resumed where nothing else is left."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from command.conftest import distinct
from command.process import Command, Running
from command.record import UNWRITTEN_S, check_repeats
from command.test_kill import CONCURRENCY, MESSAGES, values
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic
from s3 import LOGIN, S3

KILLS = 2
ENDS_WITHIN_S = 1_200.0
MANY_KILLS = int(os.environ.get("DRAINER_KILLS", "20"))
# A piece of the journal in a bucket is due each 1.5 s, and takes a request.
INTERVALS_S = {"topic": UNWRITTEN_S, "bucket": 1.5 + 0.5}
# The lock of a drain that was killed keeps the next one out for this long.
SHORT = ("-X", "session.timeout.ms=1500")


class Elsewhere:
    """A plan in a topic or a bucket, and machines that share nothing else."""

    def __init__(self, command: Command, kind: str, uri: str) -> None:
        self.command, self.kind, self.uri = command, kind, uri
        self.brokers = ("-b", command.bootstrap)
        self.machines = 0

    def move(self) -> None:
        """Go on at another machine, which has neither files nor memories of the drain."""
        self.machines += 1
        self.command.folder = self.command.home / f"machine{self.machines}"
        self.command.folder.mkdir()
        runtime = self.command.home / f"run{self.machines}"
        runtime.mkdir(mode=0o700)
        self.command.env["XDG_RUNTIME_DIR"] = str(runtime)

    def begin(self, topic: Topic, *more: str, **options: object) -> Running:
        # A topic alone is enough: drainer names the plan by what it drains.
        place = self.uri.rpartition("/")[0] if self.kind == "topic" else self.uri
        own = [*SHORT, "--plan", place, *more, *self.command.options(**options)]
        return self.command.begin(topic, *own)

    def resume_words(self, *more: str, **options: object) -> list[str]:
        handler = ("--handler", f"{self.command.handlers}:OnTheLoop")
        words = ["resume", self.uri, *self.brokers, *handler, "--yes", *SHORT, *more]
        return [*words, *self.command.options(**options)]

    def plan(self, *words: str) -> dict[str, object]:
        return self.command("plan", *words, self.uri, *self.brokers, "-o", "json").answer


@pytest.fixture(params=["topic", "bucket"])
def elsewhere(
    request: pytest.FixtureRequest, command: Command, cluster: Cluster, topic_name: str
) -> Iterator[Elsewhere]:
    if request.param == "bucket":
        s3: S3 = request.getfixturevalue("s3")
        command.env |= LOGIN
        yield Elsewhere(command, "bucket", s3.uri(f"{topic_name}/orders.plan.json"))
        return
    yield Elsewhere(command, "topic", f"kafka://plans-{topic_name}/{{}}")
    cluster.delete_topic(f"plans-{topic_name}")


def killed_again_and_again(elsewhere: Elsewhere, kills: int, messages: int, pause_ms: int) -> None:
    command, seed = elsewhere.command, random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic = command.topic([value for _ in range(messages // MESSAGES) for value in values(chance)])
    elsewhere.uri = elsewhere.uri.format(f"{topic.name}.{command.group(topic)}")
    moments = sorted(chance.randrange(3 * messages) for _ in range(kills))
    more, killed = ("-c", str(CONCURRENCY)), set[int]()
    running = elsewhere.begin(topic, *more, pause_ms=pause_ms)
    for moment in moments:
        command.wait_for(running, "done", moment)
        running.kill()
        killed.add(running.pid)
        elsewhere.move()
        running = command.start(*elsewhere.resume_words(*more, pause_ms=pause_ms))
    running.ends(0, within_s=ENDS_WITHIN_S)  # A third of it all is one hot lane.
    command.ensure_drained(topic)
    interval_s = INTERVALS_S[elsewhere.kind]
    check_repeats(command.record.lines(), killed, CONCURRENCY, kills, interval_s)
    assert command.left_behind == []
    history = elsewhere.plan("history")["history"]
    assert isinstance(history, list)
    # A process that was killed at once had not written its plan, and many events are left out.
    begun, *resumed, ended = [each["what"] for each in history]
    assert (begun, {*resumed}, ended) == ("begun", {"resumed"}, "ended")
    assert elsewhere.plan("show")["last_run"] == "done"


def test_killed_at_random_and_resumed_on_other_machines_it_loses_nothing(
    elsewhere: Elsewhere,
) -> None:
    killed_again_and_again(elsewhere, KILLS, MESSAGES, pause_ms=2)


@pytest.mark.long
def test_killed_many_times_it_loses_nothing_and_repeats_little(elsewhere: Elsewhere) -> None:
    """``DRAINER_KILLS=200 pytest -m long`` is what is promised; each place takes half an hour."""
    # Long enough between two kills for a few writes of the plan.
    messages = MESSAGES * max(1, MANY_KILLS // 10)
    killed_again_and_again(elsewhere, MANY_KILLS, messages, pause_ms=50)


def test_a_second_operator_is_refused_by_the_name_of_the_first(elsewhere: Elsewhere) -> None:
    command = elsewhere.command
    topic = command.topic(distinct(40))
    elsewhere.uri = elsewhere.uri.format(f"{topic.name}.{command.group(topic)}")
    running = elsewhere.begin(topic, "-c", "4", gate=command.gate)
    command.wait_for(running, "begun", 4)
    elsewhere.move()
    refused = command(*elsewhere.resume_words(gate=command.gate), code=3)
    # The first operator may write its plan just while the second one begins.
    assert "holds the lock on group" in refused.error or "in the meantime" in refused.error
    assert "@" in refused.error.rpartition(": ")[2]
    assert "has it since" in refused.error
    command.gate.touch()
    running.ends(0)
    command.ensure_drained(topic, once=True)


def test_the_preview_says_what_is_created_and_what_a_kill_repeats(
    command: Command, cluster: Cluster, topic_name: str
) -> None:
    topic, plans = command.topic(distinct(3)), f"plans-{topic_name}"
    words = [*command.what(topic), "--from", "earliest", "--plan", f"kafka://{plans}", "--dry-run"]
    shown = " ".join(command("run", *words, *command.options()).out.split())
    assert f"topic {plans}: compacted, replication 1, min.insync.replicas 1" in shown
    assert "repeats what was in flight, or finished in the last 50ms" in shown
    assert f"kafka://{plans}/{topic.name}.{command.group(topic)}" in shown
    assert plans not in cluster.topic_names()
    first = command.drain(topic, "--plan", f"kafka://{plans}")
    assert cluster.topic_config(plans)["cleanup.policy"] == "compact"
    topic.produce(distinct(2))
    words = ["run", *command.what(topic), "--plan", f"kafka://{plans}", "--yes"]
    second = command(*words, *command.options())
    uri = f"kafka://{plans}/{topic.name}.{command.group(topic)}"
    (line,) = [each for each in second.err.splitlines() if "kept the earlier plan as" in each]
    aside = line.rpartition(" ")[2]
    assert aside.startswith(f"{uri}.")
    brokers = ("-b", command.bootstrap, "-o", "json")
    assert command("plan", "show", aside, *brokers).answer["partitions"]["0"]["end"] == 3
    assert command("plan", "verify", uri, *brokers).answer["status"] == "ok"
    undone = command("plan", "undo", uri, *brokers, "--yes").answer
    assert undone["partitions"]["0"] == {"found": 5, "committed": 3, "prior": 3}
    assert "resume" not in first.out
    assert command.left_behind == []
    cluster.delete_topic(plans)


def test_a_topic_that_would_lose_the_plan_is_refused(command: Command) -> None:
    topic = command.topic(distinct(3))
    for policy in ("delete", "compact,delete"):
        plans = command.topic(config={"cleanup.policy": policy})
        refused = command.drain(topic, "--plan", f"kafka://{plans.name}", code=3)
        assert f"cleanup.policy={policy}" in refused.error
        assert "cleanup.policy=compact" in refused.hint
