"""The overview of many dead letters: all are counted, the newest are kept."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.letters import TIME, Sample, as_record, mutated_letters
from drainer.letters import overview
from drainer.letters.overview import Overview, overview_of
from drainer.message import Message
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.policy.redrive import Redriven, split_letter


def surveyed(samples: list[Sample], wanted: LetterFilter | None = None, limit: int = 3) -> Overview:
    records = [(as_record(each.letter(), offset), False) for offset, each in enumerate(samples)]
    return overview_of("the.dead", records, wanted or LetterFilter(), limit)


def at(second: int) -> str:
    return TIME.replace(":12.", f":{second:02}.")


def test_letters_are_counted_by_error_reason_and_sub_key() -> None:
    errors = [ValueError("a"), ValueError("b"), TimeoutError()]
    found = surveyed(
        [Sample(f"doc-{n % 2}", error=errors[n % 3]) for n in range(9)]
        + [Sample("doc-0", error=None, reason="limit", handler="other")]
    )
    assert (found.letters, found.matching, found.foreign) == (10, 10, 0)
    assert found.counts == {
        "error": {"ValueError": 6, "TimeoutError": 3, "no error": 1},
        "reason": {"failed": 9, "limit": 1},
        "sub_key": {"doc-0": 6, "doc-1": 4},
    }


def test_the_newest_are_kept_newest_first_without_their_payload() -> None:
    found = surveyed([Sample(payload={"n": n}, time=at(n * 7 % 10)) for n in range(10)])
    assert [letter.time for letter, _ in found.newest] == [at(9), at(8), at(7)]
    assert {letter.payload for letter, _ in found.newest} == {None}
    assert surveyed([Sample()] * 3, limit=0).newest == ()


@given(st.lists(mutated_letters(), max_size=30))
def test_no_record_breaks_the_list_or_the_redrive_of_the_others(records: list[Message]) -> None:
    read = [*records, as_record(Sample().letter())]
    for offset, each in enumerate(read):
        each.offset = offset
    found = overview_of("the.dead", ((each, False) for each in read), LetterFilter(), 1000)
    subs = [sub for message in read for sub in split_letter(RedriveSettings(), message)]
    orjson.dumps(found.as_json())
    assert found.letters >= sum(isinstance(sub, Redriven) for sub in subs) >= 1


def test_memory_does_not_grow_with_the_sub_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "TALLIED", 10)
    keys = [*(f"doc-{n}" for n in range(100)), *["hot"] * 30, *(f"doc-{n}" for n in range(50, 60))]
    found = dict(surveyed([Sample(key) for key in keys]).counts["sub_key"])
    assert found.pop("hot") == 30
    assert set(found.values()) == {1}, "those that came again had been forgotten"
