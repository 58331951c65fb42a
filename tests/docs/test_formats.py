"""Fields in docs/reference/formats.md are those of plans, dead letters and summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from builders import a_cap, a_status, a_summary, counts
from core.letters import Sample
from docs.pages import ROOT
from drainer.core.merge import Record
from drainer.letters.receipts import Receipt
from drainer.model import formats
from drainer.model.account import Event, EventKind, ParkedLane, ParkedLanes
from drainer.model.deadline import DeadlineStatus
from drainer.model.formats import RECEIPT, Format
from drainer.model.hand_over import HandOver, PartitionHandOver
from drainer.model.latency import Latency
from drainer.model.plan import OpenTransaction
from drainer.model.priority import ClassStatus, PriorityClass
from drainer.model.progress import Counts, Outcome
from drainer.model.status import (
    SECTIONS,
    AutoStatus,
    FailureStatus,
    HeldBack,
    LagStatus,
    OutageStatus,
)
from drainer.model.unhandled import RuleStatus, Unhandled
from drainer.policy.dead_letter import HEADER
from drainer.store.journal import JournalHead, record_body

PAGE = (ROOT / "docs/reference/formats.md").read_text()
EVENT = Event(
    "2026-11-21T18:00:00+00:00", EventKind.CHANGED, "ana@db1", "slow", ("rate none",), {0: 1}
)
LATENCY = Latency.of(4_711, 0.0105, [n / 5_000 for n in range(101)])
PARKED = ParkedLanes(1, (ParkedLane("'doc-17'", "orders/0/118[2]", "ValueError: no"),))
FULL_PLAN = json.loads((ROOT / "tests/store/full_plan.json").read_bytes())
CAP = a_cap()
FULL_SUMMARY = a_summary(
    failures=FailureStatus(outage=OutageStatus(datetime.now(UTC), 1.0, datetime.now(UTC), 1.0)),
    held_back=(HeldBack(0, 470, "'d-root'", 423, 20.0),),
    parked=PARKED,
    left_alone={"of other drains": 1},
    latency=LATENCY,
    auto=AutoStatus(1, 1, None, searching=True, why=""),
    rules=RuleStatus(),
    read_cap=CAP,
    write_cap=CAP,
    open_transactions=(OpenTransaction("orders", 0, 1, 1),),
    history=(EVENT,),
    classes=(ClassStatus("payload.customer == 42", counts()),),
    deadline=DeadlineStatus(datetime.now(UTC), 1.0, 1.0),
    lag=LagStatus(1, 1.0),
    hand_over=HandOver({0: PartitionHandOver(9000)}),
)

PROGRESS = a_status().progress

# Objects whose names are no fields, by the page's word for such a name; None for one whose values
# have no fields of their own.
NAMED: dict[str, str | None] = {
    "partitions": "N",
    "claims": "SELECTOR",
    "claims.SELECTOR": "N",
    "hand_over.partitions": "N",
    **dict.fromkeys(("claims.SELECTOR.N.partial", "claims.SELECTOR.N.outcomes")),
    **dict.fromkeys(f"unhandled.{name}" for name in ("skipped_by", "skipped_for", "diverted_by")),
    **dict.fromkeys(("redrive.headers", "options", "state.units", "state.counted")),
    **dict.fromkeys(("history.offsets", "left_alone", "engine_counts", "undecided", "why")),
    **dict.fromkeys(("skipped_by", "skipped_for", "diverted_by")),
}
ACCOUNT = {each.name for each in fields(Counts)}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def documented(title: str) -> list[str]:
    """The names in the first column of its table, ``.name`` with the path before it."""
    names: list[str] = []
    for cell in re.findall(r"^(`.+?) \| ", section(title), re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", cell):
            before = names[-1].rpartition(".")[0] if name.startswith(".") else ""
            names.append(before + name)
    return names


def paths(body: Any, known: frozenset[str] = frozenset(), at: str = "") -> Iterator[str]:
    """All fields of an object; accounts, and objects by a name in ``known``, are not gone into."""
    if isinstance(body, list):
        for each in body:
            yield from paths(each, known, at)
    if not isinstance(body, Mapping) or set(body) == ACCOUNT:
        return
    if at in NAMED:
        if (name := NAMED[at]) is not None:
            for value in body.values():
                yield from paths(value, known, f"{at}.{name}")
        return
    for field, value in body.items():
        path = f"{at}.{field}" if at else field
        yield path
        if path not in known:
            yield from paths(value, known, path)


def ensure_same(output: list[str], found: set[str]) -> None:
    assert len(set(output)) == len(output), "a field is there twice"
    objects = {each for each in found if any(path.startswith(f"{each}.") for path in found)}
    assert found - set(output) - objects == set(), "fields that docs/reference/formats.md lacks"
    assert set(output) - found == set(), "fields of docs/reference/formats.md that there are not"


def test_the_version_of_each_format_is_on_the_page() -> None:
    known = [each for each in vars(formats).values() if isinstance(each, Format)]

    assert len(known) >= 6
    for each in known:
        row = f" | `{each}`, from {each.oldest} on | "
        assert section("Versions and promises").count(row) == 1, row


def test_each_field_of_a_plan_is_on_the_page_and_no_other() -> None:
    state = FULL_PLAN["state"] | {"unhandled": {}}  # whose fields are those of the plan's

    ensure_same(documented("Offset plan"), set(paths(FULL_PLAN | {"state": state})))
    assert f"`{FULL_PLAN['format']}`" in section("Offset plan")
    for field in (*ACCOUNT, *(each.value for each in Outcome)):
        assert re.search(rf"\b{field}\b", section("Offset plan")), field


def test_each_field_of_a_dead_letter_is_on_the_page_and_no_other() -> None:
    name, value = Sample().letter().headers[0]

    assert name == HEADER
    assert f"`{name}`" in section("Dead letter")
    ensure_same(documented("Dead letter"), set(json.loads(value or b"")))


def test_each_field_of_a_receipt_is_on_the_page_and_no_other() -> None:
    assert f"`{RECEIPT}`" in section("Receipt of a redrive")
    ensure_same(documented("Receipt of a redrive"), {each.name for each in fields(Receipt)})


def test_each_field_of_a_summary_is_on_the_page_and_no_other() -> None:
    body = json.loads(json.dumps(FULL_SUMMARY.as_json()))
    known = frozenset(
        {"history", "latency", "latency_recent", "parked_first", "read_cap"}
    )  # once is enough
    found = set(paths(body, known))
    of_plan = {each.name for each in fields(PriorityClass)}
    found -= {f"classes.{name}" for name in of_plan}
    status = [name for name in documented("Status") if not name.startswith("partitions.")]

    ensure_same([*status, *documented("JSON summary")], found)


def test_each_field_of_a_status_is_on_the_page_and_no_other() -> None:
    body = json.loads(json.dumps(replace(FULL_SUMMARY.last, progress=PROGRESS).as_json()))
    found = {f"partitions.{name}" for each in body["partitions"] for name in each} | set(body)
    objects = {"auto", "deadline", "lag", "outage", "partitions", "processor"}
    named = [name for name in documented("Status") if "." not in name or "partitions" in name]

    ensure_same(named, found - objects)


def test_no_two_sections_of_a_status_have_a_field_of_the_same_name() -> None:
    names = [each.name for section in SECTIONS.values() for each in fields(section)]
    assert len(set(names)) == len(names)


def test_each_field_of_a_journal_is_on_the_page() -> None:
    body = record_body(Record({}, ("'doc-17'",), Unhandled(), "1/2"))

    for field in (*(each.name for each in fields(JournalHead)), *body):
        assert f"`{field}`" in section("Files beside a plan"), field


def test_the_excerpt_fits_its_explanation() -> None:
    (excerpt,) = re.findall(r"```json\n(.+?),?\n```", PAGE, re.DOTALL)
    partial = json.loads(f"{{{excerpt}}}")["partial"]

    count, _, bits = partial["421"].split(":")
    assert (count, f"{int(bits, 16):b}") == ("4", "1011")
