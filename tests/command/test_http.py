"""The handler ``http``: a service handles sub-messages, and nothing else is done."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from command.process import Command, Running
from command.service import Service, nothing, results, service
from kafka.topic import Topic, eventually

SPLIT = ("--split", "documents", "--key", "payload.id")
QUICK = ("--tune", "retry-delay=10ms", "--tune", "max-doubt=0")


def bundles(count: int) -> list[str]:
    """Messages of five documents each, which take turns in forty keys."""
    places = [range(5 * n, 5 * n + 5) for n in range(count)]
    return [json.dumps({"documents": [{"id": f"k{n % 40}"} for n in each]}) for each in places]


def begin(command: Command, topic: Topic, called: Service, *more: str) -> Running:
    what = [*command.what(topic, "http"), "--from", "earliest", "--yes", *SPLIT, *QUICK]
    return command.start("run", *what, "--set", f"url={called.url}", *more)


def ids(items: list[Any]) -> Counter[str]:
    return Counter(item["id"] for item in items)


def test_a_single_call_has_one_sub_message_and_its_identity(command: Command) -> None:
    topic = command.topic(bundles(10))
    client = command.home / "client.properties"
    client.write_text("http.token=s3cr3t-t0ken\n")
    with service(nothing) as called:
        outcome = begin(command, topic, called, "--client-config", str(client)).ends(0)
    assert len(called.bodies) == 50
    first = next(item for item in called.items if (item["offset"], item["index"]) == (3, 2))
    assert first["id"] == f"{command.cluster.topic(topic.name).topic_id}:0:3:2"
    assert (first["topic"], first["key"], first["payload"]) == (topic.name, "k17", {"id": "k17"})
    for body, headers in zip(called.bodies, called.headers, strict=True):
        assert headers["Idempotency-Key"] == headers["Drainer-Id"] == body["id"]
        assert headers["Authorization"] == "Bearer s3cr3t-t0ken"
    assert f"the service {called.url} answers (OPTIONS 405" in outcome.err
    assert "s3cr3t" not in outcome.err + command.plan(topic).read_text()


def test_a_batch_is_done_as_far_as_the_answer_lists(command: Command) -> None:
    topic = command.topic(bundles(40))
    seen = Counter[str]()

    def answer(body: Any) -> Any:
        keys = [item["key"] for item in body["batch"]]
        assert len(keys) == len(set(keys)), "one of each lane"
        seen.update(keys)
        later = {"k1": "retry"} if seen["k1"] < 3 else {}
        return results(body, k7="give-up", k8="skip", **later)

    with service(answer) as called:
        more = ("--set", "batch=20", "-c", "4", "--on-failure", "dead-letter", "-o", "json")
        outcome = begin(command, topic, called, *more, "--max-failures", "9").ends(6)
    counts = outcome.answer["sub_messages"]
    assert (counts["done"], counts["dead"], counts["skipped"]) == (190, 5, 5)
    again = {item["key"] for item in called.items if ids(called.items)[item["id"]] > 1}
    assert again == {"k1"}, "items that are retried hold only their own lanes"
    assert len(called.bodies) < 100


@pytest.mark.long
def test_killed_it_resumes_without_its_options(command: Command) -> None:
    topic = command.topic(bundles(200))
    done = list[Any]()

    def answer(body: Any) -> Any:
        done.extend(body["batch"])
        return results(body)

    with service(answer) as called:
        running = begin(command, topic, called, "--set", "batch=5", "--rate", "250/s")
        eventually(lambda: len(done) > 200 or not running.running, "some are done", 60)
        running.kill()
        command("resume", str(command.plan(topic)), "--yes", "--rate", "none")
    assert len(ids(done)) == 1_000
    assert sum(ids(done).values()) < 1_000 + 100
    for key in {item["key"] for item in done}:
        places = [(item["offset"], item["index"]) for item in done if item["key"] == key]
        back = sum(b <= a for a, b in pairwise(places))
        assert back <= 1, "in order but for where it was killed"


@pytest.mark.long
def test_a_probe_logs_in_at_the_service(command: Command) -> None:
    client = command.home / "client.properties"
    client.write_text("http.user=me\nhttp.password=s3cr3t\n")
    with service(nothing, login=f"Basic {b64encode(b'me:s3cr3t').decode()}") as called:
        words = ["probe", "-b", command.bootstrap, "--handler", "http"]
        words += ["--set", f"url={called.url}?sig=s3cr3t-key"]
        probed = command(*words, "--client-config", str(client))
        without = command(*words)
    assert f"the service {called.url} answers (OPTIONS 405" in probed.out
    assert f"the service {called.url} rejects the login (OPTIONS 401)" in without.out
    assert "s3cr3t" not in probed.out + probed.err + without.out + without.err
