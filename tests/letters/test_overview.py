"""The overview of many dead letters: all are counted, the newest are kept."""

from __future__ import annotations

import pytest

from core.letters import TIME, Sample, as_record
from drainer.letters import overview
from drainer.letters.overview import LetterSurvey, Overview
from drainer.policy.dead_letter import LetterFilter


def surveyed(samples: list[Sample], wanted: LetterFilter | None = None, limit: int = 3) -> Overview:
    survey = LetterSurvey("the.dead", wanted or LetterFilter(), limit)
    for offset, sample in enumerate(samples):
        survey.take(as_record(sample.letter(), offset))
    return survey.overview()


def at(second: int) -> str:
    return TIME.replace(":12.", f":{second:02}.")


def test_letters_are_counted_by_error_handler_reason_and_sub_key() -> None:
    errors = [ValueError("a"), ValueError("b"), TimeoutError()]
    found = surveyed(
        [Sample(f"doc-{n % 2}", error=errors[n % 3]) for n in range(9)]
        + [Sample("doc-0", error=None, reason="limit", handler="other")]
    )
    assert (found.letters, found.matching, found.foreign) == (10, 10, 0)
    assert found.by_error == (
        (("ValueError", "shop:Reindex"), 6),
        (("TimeoutError", "shop:Reindex"), 3),
        (("", "other"), 1),
    )
    assert found.by_reason == (("failed", 9), ("limit", 1))
    assert found.by_sub_key == (("doc-0", 6), ("doc-1", 4))


def test_the_newest_are_kept_newest_first_without_their_payload() -> None:
    found = surveyed([Sample(payload={"n": n}, time=at(n * 7 % 10)) for n in range(10)])
    assert [letter.time for letter, _ in found.newest] == [at(9), at(8), at(7)]
    assert {letter.payload for letter, _ in found.newest} == {None}
    assert surveyed([Sample()] * 3, limit=0).newest == ()


def test_memory_does_not_grow_with_the_sub_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "TALLIED", 10)
    survey = LetterSurvey("the.dead", LetterFilter(), 3)
    for n in range(1000):
        survey.take(as_record(Sample("hot" if n % 2 else f"doc-{n}").letter(), n))
        assert len(survey._by_sub_key._counts) <= 20
    assert survey.overview().by_sub_key[0] == ("hot", 500)


def test_what_was_redriven_is_counted_and_only_listed_when_it_is_asked_for() -> None:
    def found(*, all_: bool) -> Overview:
        survey = LetterSurvey("the.dead", LetterFilter(sub_keys=("a", "b")), 5, all_=all_)
        for offset, key in enumerate(["a", "b", "a", "c"]):
            survey.take(as_record(Sample(key).letter(), offset), redriven=offset < 2)
        return survey.overview()

    outstanding = found(all_=False)
    assert (outstanding.letters, outstanding.redriven, outstanding.outstanding) == (4, 2, 2)
    assert (outstanding.asked, outstanding.matching) == (2, 1)
    assert [(letter.offset, redriven) for letter, redriven in outstanding.newest] == [(2, False)]
    everything = found(all_=True)
    assert (everything.asked, everything.matching) == (4, 3)
    assert [redriven for _, redriven in everything.newest] == [False, True, True]
