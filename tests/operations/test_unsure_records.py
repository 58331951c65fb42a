"""A drain whose handler writes records of which nobody can tell whether they are there."""

from __future__ import annotations

import pytest

from drainer.errors import RightMissing
from drainer.kafka import producer
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.loader import LoadedHandler
from drainer.model.settings import LocalSettings
from drainer.model.status import Summary
from drainer.operations.drain import drain
from drainer.operations.resume import prepare_resume
from drainer.operations.start import Request, prepare
from drainer.produce import Produce
from kafka.liar import LyingSettings, Truth
from kafka.topic import Topic
from operations.conftest import MESSAGES, Story

FATES: list[Truth] = ["known", "known", "known", "dropped", "written", "known", "dropped"]


def no_read(*_: object) -> None:
    raise RightMissing("READ on topic to is missing", hint="Grant READ.")


@pytest.fixture
def target(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, f"{topic_name}-to")


def produce(story: Story, target: Topic, settings: ClientSettings) -> Summary:
    """A new drain, or the rest of one."""
    running = LocalSettings(concurrency=4, options={"topic": target.name})
    with Cluster.connect(settings) as cluster:
        if story.file.path.exists():
            prepared = prepare_resume(cluster, story.file, story.file.load(), running)
        else:
            handler = LoadedHandler("produce", Produce())
            name, file = story.topic.name, story.file.path
            request = Request(name, story.group, handler, from_="earliest", plan_path=file)
            prepared = prepare(cluster, request, running)
        return drain(cluster, prepared, running)


def written(cluster: Cluster, target: Topic) -> list[int]:
    """The numbers of the messages that the target has, as often as it has them."""
    log = cluster.log_bounds(target.name, [0], "read_uncommitted")[0]
    return sorted(int(record.value() or b"") for record in target.read_all(log.end))


def test_what_is_missing_is_written_before_the_group_is_past_it(
    story: Story, target: Topic, cluster: Cluster
) -> None:
    summary = produce(story, target, LyingSettings.of(cluster.settings, *FATES))
    assert (summary.exit_code, story.committed) == (0, MESSAGES)
    assert written(cluster, target) == list(range(MESSAGES))


def test_who_may_not_look_is_interrupted_and_resumes_without_a_loss(
    story: Story, target: Topic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(producer, "find_marks", no_read)
        summary = produce(story, target, LyingSettings.of(cluster.settings, *FATES))
    assert (summary.status, summary.exit_code, summary.conserved) == ("interrupted", 4, True)
    assert "READ on topic to is missing" in (summary.error or "")
    assert "Grant READ. Then resume" in (summary.hint or "")
    assert summary.resume is not None
    assert summary.sub_messages.pending
    assert produce(story, target, cluster.settings).exit_code == 0
    assert set(written(cluster, target)) == set(range(MESSAGES))
