"""The plan as bytes: what was written is read again, and anything else is refused."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from builders import a_partition, changed, counts, progress_at
from drainer.errors import PlanRefused
from drainer.model import formats
from drainer.model.account import NOBODY, Account, Event, EventKind
from drainer.model.claims import ALL, Shard
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Partial, Progress
from drainer.model.settings import FailureSettings, Limit
from drainer.model.terms import Terms
from drainer.model.unhandled import Unhandled
from store.plans import END, PLAN, edited, leaves, progress, put, signed, with_progress

FORMAT = str(formats.PLAN)
# The words that a plan may have. An older drainer calls a plan with another word damaged.
WORDS = {
    "AfterDead": ["continue", "park"],
    "EventKind": [
        *("begun", "resumed", "changed", "paused", "unpaused", "went on", "consumers joined"),
        *("ended", "handed over", "undone"),
    ],
    "OnFailure": ["halt", "dead-letter", "park", "skip"],
    "Outcome": ["unsplit", "done", "skipped", "failed", "dead"],
    "Unkeyed": ["own-lane", "one-lane"],
}
GOLDEN = Path(__file__).parent / "full_plan.json"
ACCOUNT = PLAN.account
ENCODED = PLAN.encode()
SHARE = FailureSettings(max_failures=Limit(share=0.29))


@st.composite
def progresses(draw: st.DrawFn, start: int, end: int) -> Progress:
    watermark = draw(st.integers(start, end))
    offsets = sorted(draw(st.sets(st.integers(watermark, end), max_size=12)))
    ranges = tuple((first, last) for first, last in zip(offsets[::2], offsets[1::2], strict=False))
    free = [o for o in range(watermark, end) if not any(a <= o < b for a, b in ranges)]
    parts = {}
    if free:
        for offset in draw(st.sets(st.sampled_from(free), max_size=4)):
            count = draw(st.integers(2, 200))
            bits = draw(st.integers(1, (1 << count) - 2))
            parts[offset] = Partial(count, draw(st.integers(0, 2**32 - 1)), bits)
    done, dead, skipped, pending = draw(st.tuples(*[st.integers(0, 2**40)] * 4))
    account = counts(done=done, dead=dead, skipped=skipped, pending=pending)
    return progress_at(
        watermark, finished=ranges, partial=parts, messages=account, sub_messages=account
    )


@st.composite
def plans(draw: st.DrawFn) -> OffsetPlan:
    partitions, claim = {}, {}
    others: dict[str, dict[int, Progress]] = {
        str(Shard(of - 1, of)): {} for of in draw(st.sets(st.integers(1, 99), max_size=2))
    }
    for number in draw(st.sets(st.integers(0, 99), min_size=1, max_size=4)):
        start = draw(st.integers(0, 2**50))
        end = start + draw(st.integers(0, 60))
        claim[number] = draw(progresses(start, end))
        for other in others.values():
            other[number] = replace(draw(progresses(start, end)), messages=counts())
        committed = draw(st.none() | st.integers(0, claim[number].watermark))
        prior, epoch = (
            draw(st.none() | st.integers(0, 2**63 - 1)),
            draw(st.none() | st.integers(0, 9)),
        )
        partitions[number] = a_partition(
            start, end, prior=prior, committed=committed, leader_epoch=epoch
        )
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    return changed(
        PLAN,
        generation=draw(st.integers(0, 2**40)),
        topic=draw(text),
        group=draw(text),
        handler=draw(text),
        client_config=draw(st.none() | text),
        partitions=partitions,
        claims={ALL: claim, **others},
        failures=draw(st.sampled_from([PLAN.terms.failures, SHARE])),
        parked=tuple(draw(st.lists(text, max_size=4))),
        redrive=draw(st.sampled_from([None, PLAN.terms.redrive])),
        latency=draw(st.sampled_from([None, PLAN.account.latency])),
        unhandled=Unhandled(),
    )


def test_a_plan_with_a_name_that_is_no_text_is_refused_before_it_is_written() -> None:
    with pytest.raises(PlanRefused, match="not UTF-8"):
        changed(PLAN, group="half \udcff").encode()


@given(plans())
@settings(max_examples=settings().max_examples // 3)
@example(PLAN)
def test_what_is_written_is_read_again(plan: OffsetPlan) -> None:
    assert OffsetPlan.decode(plan.encode()) == plan


def refused(data: bytes) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        OffsetPlan.decode(data)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    return caught.value


@given(st.integers(0, len(ENCODED) - 1), st.integers(0, 255))
@example(0, 0)
@example(ENCODED.index(b'"generation"') + 14, ord("8"))
@example(ENCODED.index(b'"digest"') + 1, ord("D"))
@example(ENCODED.index(b".0"), ord("E"))
def test_no_byte_can_be_changed_unseen(at: int, byte: int) -> None:
    changed = ENCODED[:at] + bytes([byte]) + ENCODED[at + 1 :]
    try:
        found = OffsetPlan.decode(changed)
    except PlanRefused:
        return
    assert found == PLAN
    # White space, or 3E0 for 3.0: the same body, written otherwise.
    assert orjson.loads(changed) == orjson.loads(ENCODED)


PATHS = st.sampled_from([p for p in sorted(leaves(orjson.loads(ENCODED))) if p != ("digest",)])
STRANGE: list[Any] = [None, "x", "", "12", [], {}, {"0": 1}, -1, 0, 1.5, 2**62, "1-0", "3:4"]


@given(PATHS, st.sampled_from(STRANGE))
def test_a_wrong_field_under_a_right_digest_is_refused_and_no_crash(
    path: tuple[str, ...], value: object
) -> None:
    """Another program may write this format, and write it wrong."""
    may_lack = path[-1] == "131" or path[0] in {"unhandled", "options"}
    if not may_lack:
        refused(edited(PLAN, lambda body: reduce(getitem, path[:-1], body).pop(path[-1])))
    with suppress(PlanRefused):
        found = OffsetPlan.decode(edited(PLAN, partial(put, path=path, value=value)))
        assert OffsetPlan.decode(found.encode()) == found


def test_a_field_that_drainer_does_not_write_is_refused() -> None:
    for path in (("new",), ("partitions", "0", "new"), ("failures", "new")):
        refused(edited(PLAN, partial(put, path=path, value=0)))


@given(st.binary(max_size=60) | st.text().map(str.encode))
@example(b"")
@example(b"[]")
@example(b"null")
@example(f'"{FORMAT}"'.encode())
@example(f'{{"format":"{FORMAT}"}}'.encode())
@example(b"[" * 100_000)
@example(b"\xff\xfe{\x00")
def test_anything_else_is_refused(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize("version", ["drainer-plan/2", None])
def test_another_format_version_is_named(version: object) -> None:
    body = orjson.loads(ENCODED)
    body["format"] = version
    error = refused(signed(body))

    expected = "plan format 2 is older than" if version else "None is not a version of"
    assert expected in str(error)
    assert "another" in (error.hint or "")
    assert "--plan" in (error.hint or "")


GONE = object()
CLAIM, PARTIAL = "claims.all.0", "claims.all.0.partial"
OF_ALL = orjson.loads(ENCODED)["claims"]["all"]
WRONG = r"a field is missing or wrong: .*`\$\."


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("partitions.0.committed", 121, "partition 0: offset 121 was .* past the watermark 120"),
        ("partitions.0.end", 119, r"partition 0: watermark 120 is outside \[100, 119\]"),
        ("partitions.0.lost", "119-120", "partition 0: what is lost is not below the watermark"),
        ("partitions.0.prior", -1, r">= 0 - at `\$.partitions.*prior`"),
        ("partitions.2", GONE, "not have the same partitions"),
        ("claims.all.2", GONE, "not have the same partitions"),
        ("claims.all", GONE, "it has no claim 'all'"),
        ("claims.0-7fff", OF_ALL, "'0-7fff' is not the selector"),
        ("claims.0/2", OF_ALL, "claim 0/2, partition 0: messages are counted in 'all'"),
        (f"{CLAIM}.watermark", 99, r"watermark 99 is outside \[100, 200\]"),
        (f"{CLAIM}.finished", "118-130 140", "finished ranges begin below the watermark 120"),
        (f"{CLAIM}.finished", "125-129 190-200", "finished ranges go past the end 200"),
        (f"{CLAIM}.finished", "130-125", "'130-125' is out of order"),
        (f"{CLAIM}.finished", "125-129 127-140", "out of order"),
        (f"{CLAIM}.finished", "125- 140", f"{WRONG}claims"),
        (f"{CLAIM}.messages.read", -2, r">= 0 - at `\$.claims.*messages.read`"),
        (PARTIAL, {"126": "5:deadbeef:d"}, "offset 126 is pending in part and finished"),
        (PARTIAL, {"200": "5:deadbeef:d"}, "offset 200"),
        (PARTIAL, {"131": "5:deadbeef:0"}, "finishes none or all"),
        (PARTIAL, {"131 ": "5:deadbeef:d"}, f"{WRONG}claims"),
        ("unhandled.skipped_by", {"a rule": 3}, ""),
        ("generation", True, f"{WRONG}generation"),
        ("drain_id", "../precious", f"{WRONG}drain_id"),
        ("order", "sideways", f"{WRONG}order"),
    ],
)
def test_a_plan_with_a_wrong_field_or_a_broken_law_is_refused_by_name(
    path: str, value: object, message: str
) -> None:
    *above, name = path.split(".")

    def edit(body: dict[str, Any]) -> None:
        place = reduce(getitem, above, body)
        place[name] = value
        if value is GONE:
            del place[name]

    error = refused(edited(PLAN, edit))
    assert re.search(message, str(error))
    assert "the plan is damaged" in str(error)


def test_a_merge_adds_the_lanes_that_were_parked_since_and_what_was_skipped() -> None:
    later = Unhandled({"payload.kind == 'set_email'": 5}, {"too old": 1})
    merged = ACCOUNT.merge({}, ["'doc-17'", "'a'"], unhandled=later)
    assert merged.parked == ("'a'", "'doc-17'", "(b'eu', 4)")
    assert merged.unhandled == later
    assert ACCOUNT.merge({}) == ACCOUNT


def test_what_is_pending_before_the_start_of_a_log_is_lost_by_name() -> None:
    plan = with_progress(PLAN, p0=progress(120, (125, 130), (140, 141)), p2=progress_at(0))

    gaps = plan.account.gaps({0: 135, 2: 0})
    past = plan.account.past(gaps)

    assert gaps == {0: ((120, 125), (130, 135))}
    assert past.lost == {0: ((105, 107), (120, 125), (130, 135))}
    assert past.claims[ALL][0].watermark == 135
    assert past.claims[ALL][0].finished == ((140, 141),)
    assert past.counts() == plan.account.counts()
    assert past.gaps({0: 135, 2: 0}) == {}
    past.check()
    written = OffsetPlan(PLAN.terms, past)
    assert OffsetPlan.decode(written.encode()) == written


def test_what_any_claim_finished_before_the_start_of_a_log_stays_in_the_account() -> None:
    done = progress_at(140, sub_messages=counts(done=80, pending=10))
    claims = {ALL: {0: progress(120), 2: progress_at(0)}, "1/2": {0: done, 2: progress_at(0)}}
    account = changed(PLAN, claims=claims).account

    past = account.past(account.gaps({0: 135, 2: 0})).without_pending()

    before, after = account.without_pending().counts(), past.counts()
    assert after == before
    assert after[1].done >= 80


def test_a_log_that_starts_behind_the_backlog_leaves_nothing_to_do() -> None:
    past = ACCOUNT.past(ACCOUNT.gaps({0: 10_000, 2: 10_000}))

    assert past.complete
    assert past.watermarks == {0: END, 2: 50}
    assert past.claims[ALL][0].partial == {}
    past.check()


def test_all_times_that_consumers_joined_are_counted_though_the_history_is_bounded() -> None:
    account, event = ACCOUNT, Event(ACCOUNT.updated, EventKind.JOINED, NOBODY)
    for _ in range(1_500):
        account = account.with_event(event)

    plan = OffsetPlan.decode(OffsetPlan(PLAN.terms, account).encode())

    assert len(plan.account.history) == 1_000
    assert plan.account.times_joined == 1_500


def test_a_plan_with_every_field_is_written_byte_for_byte_as_it_was() -> None:
    """``DRAINER_WRITE_PLAN=1 pytest tests/store/test_plan_format.py`` writes it anew."""
    golden = GOLDEN.read_bytes()
    body = orjson.loads(golden)
    written = OffsetPlan(Terms.from_json(body), Account.from_json(body)).encode()
    if os.environ.get("DRAINER_WRITE_PLAN"):
        GOLDEN.write_bytes(golden := written)
    assert written == golden, (
        "The format of the plan has changed. Raise PLAN in drainer/model/formats.py and in"
        " docs/reference/formats.md, and write the plan anew:"
        " DRAINER_WRITE_PLAN=1 pytest tests/store/test_plan_format.py"
    )
    names = [each.name for part in (Terms, Account) for each in fields(part)]
    assert [*body] == ["format", *names, "digest"]
    assert all(value not in (None, [], {}) for value in body.values())
    assert OffsetPlan.decode(golden).encode() == golden


def test_a_plan_has_no_word_that_drainers_of_its_format_do_not_know() -> None:
    left: list[Any] = [*inspect.multi_type_info([Terms, Account])]
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, inspect.EnumType):
            found[each.cls.__name__] = [member.value for member in each.cls]
        for name in each.__struct_fields__:
            value = getattr(each, name)
            inner = value if isinstance(value, tuple) else (value,)
            left += [one for one in inner if isinstance(one, inspect.Type | inspect.Field)]

    assert found == WORDS, "Raise PLAN in drainer/model/formats.py, unless that was done for this."
