"""Texts of errors that differ only by an id, a number, a URL or a value are one kind."""

from __future__ import annotations

import pytest

from drainer.engine.error_kinds import ErrorCounts, kind_of
from drainer.policy.fault import blame


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("document 17 is gone", "document 4711 is gone"),
        ("doc-17 not found", "doc-18 not found"),
        ("no 8c1f77aa-0001-4e4f-9d6f-0123456789ab", "no 9c1f77aa-0001-4e4f-9d6f-0123456789ac"),
        ("404 for url https://a.org/doc/1?x=2", "404 for url https://a.org/doc/28?x=3"),
        ("'404 Not Found' for 'http://a/1'", "'404 Not Found' for 'http://a/2'"),
        ("KeyError: 'doc-17'", "KeyError: 'doc-18'"),
        ("at 0x7f10ab, it can't", "at 0x7f10ff, it can't"),
        ("Connect call failed ('10.0.0.1', 5432)", "Connect call failed ('10.0.0.2', 5433)"),
    ],
)
def test_texts_that_differ_only_by_an_id_are_one_kind(one: str, other: str) -> None:
    assert kind_of(one) == kind_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'price'", "KeyError: 'name'"),
        ("503 Server Error for url: http://a/1", "404 Client Error for url: http://a/1"),
        ("'404 Not Found' for 'http://a/1'", "'503 Service Unavailable' for 'http://a/1'"),
        ("[Errno 111] refused", "[Errno 110] refused"),
        ("status=503 of 17", "status=429 of 17"),
        ("ServiceError: the service answered 404", "ServiceError: the service answered 503"),
        ("the service answered 404: no doc 1", "the service answered 503: no doc 1"),
        ('violates "orders_pkey"', 'violates "users_pkey"'),
        ("can't read 17, it doesn't exist", "can't write 17, it doesn't exist"),
    ],
)
def test_statuses_names_and_words_make_another_kind(one: str, other: str) -> None:
    assert kind_of(one) != kind_of(other)


@pytest.mark.parametrize("piece", ["a", "1", "a:", "'", '"', "http", "a.1", "://"])
def test_a_huge_text_takes_no_time(piece: str) -> None:
    assert len(kind_of(piece * 100_000)) <= 500


def test_groups_are_counted_by_what_is_in_them() -> None:
    counts = ErrorCounts()
    for number in range(3):
        counts.count(ExceptionGroup("of a task", [ValueError("no title")]))
        counts.count(ExceptionGroup("of a task", [ValueError(f"row {number} is bad")]))
        counts.count(ExceptionGroup("of a task", [ConnectionError("refused")]))
    assert dict(counts.kinds) == {
        "ExceptionGroup: of a task (ValueError: no title)": 3,
        "ExceptionGroup: of a task (ValueError: row … is bad)": 3,
        "ExceptionGroup: of a task (ConnectionError: refused)": 3,
    }
    assert dict(counts.types) == {"ValueError": 6, "ConnectionError": 3}


@pytest.mark.parametrize("errno", ["28", [], {}, None, 28.0])
def test_an_error_of_a_library_may_have_anything_for_its_number(errno: object) -> None:
    error = OSError(errno, "no room")
    assert blame(error, None)[1] is error
