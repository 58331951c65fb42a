"""Dead letters as a person sees them: one, and the overview of many."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.letters import TIME, Sample, as_record, mutated_letters, there_and_back
from drainer.letters.cli.dead import letter_page, overview_page
from drainer.letters.overview import Overview, overview_of, whole_letter_as_json
from drainer.letters.reading import decode_letter
from drainer.letters.receipts import RedriveProgress
from drainer.loading.loader import load_decoding
from drainer.message import Barrier, Message, SubMessage
from drainer.model.terms import LetterFilter, PayloadSettings, RedriveSettings
from drainer.policy.dead_letter import read_letter
from drainer.policy.redrive import Redriven, split_letter
from drainer.text.escape import json_text
from payloads.registry import AT, Serialisers, running
from view import samples

NONE = RedriveProgress("drainer.redrive.orders.dead", {})


def overview(*given: Sample, limit: int = 20) -> Overview:
    records = [(as_record(sample.letter(), offset), False) for offset, sample in enumerate(given)]
    return overview_of("orders.dead", records, LetterFilter(), limit)


def shown(sample: Sample) -> str:
    terminal, out, err = samples.terminal()
    terminal.present(letter_page(there_and_back(sample)))
    assert err.getvalue() == ""
    return out.getvalue()


def test_an_offset_is_never_cut_however_wide_the_rest_is() -> None:
    terminal, out, _ = samples.terminal(width=40)
    long = Sample("key/" * 100, error=ValueError("text " * 100))
    records = [(as_record(long.letter(), 123_456_789_012), False)]
    terminal.present(overview_page(overview_of("orders.dead", records, LetterFilter(), 20), NONE))
    row = next(line for line in out.getvalue().splitlines() if "3:123456789012" in line)
    assert "orders/2/104[1]" in row
    assert row.count("…") == 2


def test_an_error_is_cut_at_its_end_because_a_url_in_it_says_what_failed() -> None:
    terminal, out, _ = samples.terminal(width=200)
    url = "http://search:9200/orders/_update"
    error = ConnectionError(f"{url} answered 503: {'unavailable ' * 20}")
    terminal.present(overview_page(overview(Sample(error=error)), NONE))
    *_, row = (line for line in out.getvalue().splitlines() if "3:0" in line)
    assert url in row
    assert row.rstrip().endswith("…")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "null"),
        (b'{"a":1}', '{\n  "a": 1\n}'),
        (b'"quoted"', '"quoted"'),
        (b"12345678901234567890123", "12345678901234567890123"),
        (b"\xff\x00", r"b'\xff\x00'"),
        ("two\nlines", r'"two\nlines"'),
        (b"plain \xe2\x80\xae", r'"plain \u202e"'),
        ({"a": 1}, '{\n  "a": 1\n}'),
        ((1, b"x"), "(1, b'x')"),
        (1.5, "1.5"),
    ],
)
def test_a_payload_is_shown_as_a_person_reads_it(payload: Any, text: str) -> None:
    assert shown(Sample(payload=payload)).endswith(f")\n{text}\n")


def decoded(value: bytes, **formats: Any) -> tuple[dict[str, Any], str]:
    decoding = load_decoding(PayloadSettings(**formats), {})
    assert decoding is not None
    whole = there_and_back(Sample(payload=value, value=value, message_key=b'"k"'))
    letter, why = decode_letter(whole, decoding)
    terminal, out, err = samples.terminal()
    terminal.present(letter_page(letter, why))
    return whole_letter_as_json(letter), out.getvalue() + err.getvalue()


def test_a_whole_message_is_shown_decoded() -> None:
    found, text = decoded(b'{"a": [1]}', value_format="json", key_format="json")
    found = json.loads(json_text(found))
    assert (found["payload"], found["message"]["key"]) == ({"a": [1]}, "k")
    assert text.endswith('payload  (json)\n{\n  "a": [\n    1\n  ]\n}\n')


def test_a_message_of_avro_is_shown_by_its_schema() -> None:
    with running() as registry:
        order = {"id": "o-1", "at": AT, "to": {"zip": "1"}}
        value = Serialisers(registry.url, "orders").avro(order)
        found, text = decoded(value, value_format="avro", registry=registry.url)
    assert found["payload"] == repr(order)
    assert "not redriven" not in text


def test_what_is_not_decoded_is_shown_as_it_is_and_why() -> None:
    found, text = decoded(b"\xffnone", value_format="json", key_format="json")
    assert (found["payload"], found["message"]["key"]) == ({"base64": "/25vbmU="}, '"k"')
    assert "b'\\xffnone'" in text
    assert "can't decode the message: UnicodeDecodeError" in text


def test_why_a_letter_can_not_be_redriven_is_shown() -> None:
    assert "no redrive" not in shown(Sample())
    text = shown(Sample(payload=object()))
    assert "drainer can't write its payload exactly" in text
    terminal, out, _ = samples.terminal()
    letter = read_letter(as_record(Sample(payload="p").letter().without_payload()))
    terminal.present(letter_page(letter))
    assert "left out: a redrive reads its message again" in out.getvalue()


def test_several_sub_keys_and_barriers_are_named() -> None:
    assert "a, b" in shown(Sample(sub=SubMessage(keys=["a", "b"])))
    assert "barrier" in shown(Sample(sub=Barrier()))


@pytest.mark.parametrize(
    ("redriven", "key", "all_", "headline"),
    [
        (0, "a", False, "orders.dead: 3 dead letters outstanding; 1 match"),
        (2, None, False, "orders.dead: 1 dead letter outstanding, 2 redriven"),
        (2, None, True, "orders.dead: 1 dead letter outstanding, 2 redriven; 3 match"),
        (3, None, False, "✓ no dead letters outstanding in orders.dead, 3 redriven"),
    ],
)
def test_the_first_line_counts_how_many_are_outstanding(
    redriven: int, key: str | None, all_: bool, headline: str
) -> None:
    terminal, out, _ = samples.terminal()
    letters = [Sample(each, partition=n).letter() for n, each in enumerate("abc")]
    records = [(as_record(each, n), n < redriven) for n, each in enumerate(letters)]
    wanted = LetterFilter(sub_keys=(key,) if key else ())
    found = overview_of("orders.dead", records, wanted, 20, all_=all_)
    terminal.present(overview_page(found, RedriveProgress("it", {})))
    lines = out.getvalue().splitlines()
    again = "; what died again has a letter for each time" if redriven else ""
    assert lines[:2] == [headline, f"redriven: as recorded by group it{again}"]
    assert ("attempts  redriven" in out.getvalue()) == all_


@pytest.mark.parametrize(
    ("redriven", "most", "words", "sub_messages"),
    [
        (0, 9, "4 dead letters of 3 sub-messages outstanding", 3),
        (1, 9, "3 dead letters outstanding, 1 redriven", 3),
        (0, 2, "4 dead letters outstanding", None),
    ],
)
def test_a_second_letter_of_a_sub_message_counts_as_a_letter_only(
    redriven: int, most: int, words: str, sub_messages: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drainer.letters.reading.TOLD_APART", most)
    letters = [Sample(partition=n).letter() for n in (0, 0, 1, 2)]
    records = [(as_record(each, n), n < redriven) for n, each in enumerate(letters)]
    found = overview_of("orders.dead", records, LetterFilter(), 20)
    assert overview_page(found, NONE).headline.text == f"orders.dead: {words}"
    assert found.as_json()["outstanding_sub_messages"] == sub_messages


def at(second: int) -> str:
    return TIME.replace(":12.", f":{second:02}.")


def test_letters_are_counted_by_error_reason_and_sub_key() -> None:
    errors = [ValueError("a"), ValueError("b"), TimeoutError()]
    found = overview(
        *(Sample(f"doc-{n % 2}", error=errors[n % 3]) for n in range(9)),
        Sample("doc-0", error=None, reason="limit", handler="other"),
    )
    assert (found.letters, found.matching, found.foreign) == (10, 10, 0)
    assert found.counts == {
        "error": {"ValueError": 6, "TimeoutError": 3, "no error": 1},
        "reason": {"failed": 9, "limit": 1},
        "sub_key": {"doc-0": 6, "doc-1": 4},
    }


def test_the_newest_are_kept_newest_first_without_their_payload() -> None:
    found = overview(*(Sample(payload={"n": n}, time=at(n * 7 % 10)) for n in range(10)), limit=3)
    assert [letter.time for letter, _ in found.newest] == [at(9), at(8), at(7)]
    assert {letter.payload for letter, _ in found.newest} == {None}
    assert overview(*[Sample()] * 3, limit=0).newest == ()


@settings(max_examples=settings().max_examples // 3)
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
    monkeypatch.setattr("drainer.letters.overview.TALLIED", 10)
    keys = [*(f"doc-{n}" for n in range(100)), *["hot"] * 30, *(f"doc-{n}" for n in range(50, 60))]
    found = dict(overview(*map(Sample, keys)).counts["sub_key"])
    assert found.pop("hot") == 30
    assert set(found.values()) == {1}, "those that came again had been forgotten"
