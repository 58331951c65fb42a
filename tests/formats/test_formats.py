"""What earlier releases wrote is read: a drain that one of them began is finished by this one.

An upgrade in the middle of a drain is an ordinary night. The promises are on
docs/reference/formats.md.
"""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from command.process import Command
from docs.test_formats import FULL_SUMMARY, paths
from drainer.letters.receipts import read_receipt
from drainer.limits.file import load_limits
from drainer.metrics.names import COMMON_LABELS, METRICS
from drainer.model.formats import PLAN
from drainer.policy.dead_letter import read_letter
from formats.golden import (
    BAD,
    FOLDER,
    MESSAGES,
    PARTITIONS,
    PROCESS,
    RELEASES,
    SPARK,
    VALUES,
    placed,
    records,
)

every_release = pytest.mark.parametrize("release", RELEASES)
SUBS = 3 * PARTITIONS * MESSAGES


@every_release
@pytest.mark.parametrize("name", [PROCESS, SPARK])
def test_a_drain_that_it_began_is_resumed_and_repeats_nothing(
    command: Command, release: str, name: str
) -> None:
    topic = command.topic(VALUES, partitions=PARTITIONS)
    plan = placed(release, name, command, topic)
    shown = command("plan", "show", str(plan), "-o", "json").answer
    committed = {int(n): part["committed"] for n, part in shown["partitions"].items()}
    known = {n: offset for n, offset in committed.items() if offset is not None}
    if known:
        command.cluster.alter_committed(command.group(topic), topic.name, known)
    account = shown["claims"]["all"].values()
    before = sum(each["sub_messages"]["done"] for each in account)

    more = (*command.options(bad="bad"), "--engine", "process", "-o", "json")
    resumed = command(*command.resume_of(plan), *more, code=6).answer

    counts = resumed["sub_messages"]
    assert (counts["read"], counts["dead"], counts["done"]) == (SUBS, BAD, SUBS - BAD)
    done = command.record.done()
    assert 0 < before < SUBS
    assert len(done) == len(set(done)) == SUBS - BAD - before
    command.record.check_order()
    assert json.loads(plan.read_bytes())["format"] == str(PLAN)
    assert command.committed(topic) == dict.fromkeys(range(PARTITIONS), MESSAGES)


@every_release
def test_its_dead_letters_and_receipts_are_read(release: str) -> None:
    found = records(release)
    receipts = [each for each in map(read_receipt, found) if each is not None]
    letters = [read_letter(each) for each in found if read_receipt(each) is None]

    assert len(letters) == BAD
    assert {(each.key, each.reason, each.payload) for each in letters} == {("bad", "failed", None)}
    assert [each.ended for each in receipts] == [False, True]


@every_release
def test_its_limits_cap_a_drain(release: str) -> None:
    assert load_limits(FOLDER / release / "limits.json").points


@every_release
def test_its_json_has_no_field_that_this_one_lacks(release: str) -> None:
    """Scripts read them by name."""
    golden = json.loads((FOLDER / release / "summary.json").read_text())
    known = frozenset({"history", "latency_recent"})  # Their fields are the plan's.
    now = json.loads(json.dumps(FULL_SUMMARY.as_json()))

    assert set(paths(golden, known)) <= set(paths(now, known))


@every_release
def test_its_metrics_are_served_by_this_one_with_the_same_labels(release: str) -> None:
    """Dashboards and alerts read them by name."""
    text = (FOLDER / release / "metrics.txt").read_text()
    now = {each.name: (each.kind, {*each.labels, *COMMON_LABELS}) for each in METRICS}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("drainer_"):
            ending = "_total" if family.type == "counter" else ""
            kind, labels = now[f"{family.name}{ending}"]
            assert kind == family.type
            for sample in family.samples:
                assert set(sample.labels) - {"quantile"} == labels
