"""The account of a random night counts what broke a law, whatever drainer's own account has."""

from __future__ import annotations

import pytest

from scenarios.chaos.nights.account import Call, Seen, seen

EXPECTED = {(0, 0, 0): "a", (0, 0, 1): "b", (0, 1, 0): "a", (1, 0, 0): "a"}


def calls(text: str) -> list[Call]:
    """Calls of partition 0 by words such as ``+a0``: mark, sub-key, offset, and caller 2 if it ends
    with an apostrophe."""
    return [
        Call(word[0], (0, int(word[2]), int(word[1] == "b")), word[1], 2 if word[-1] == "'" else 1)
        for word in text.split()
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("+a0 +b0 -b0 -a0 +a1 -a1", Seen(0, 0, 0, 0, 0)),
        ("+a0 xa0 +a0 -a0 +b0 -b0 +a1 -a1", Seen(0, 0, 0, 0, 0)),
        ("+a0 -a0 +a0' -a0' +b0' -b0' +a1' -a1'", Seen(0, 0, 0, 0, 1)),
        ("+a0 +a0' -a0' +b0' -b0' +a1' -a1'", Seen(0, 0, 0, 0, 0)),
        ("+a0 +a0' -a0' +b0' -b0' +a1' -a1' -a0", Seen(0, 0, 0, 1, 1)),
        ("+a1 -a1 +a0 -a0 +b0 -b0", Seen(0, 0, 1, 0, 0)),
        ("+a0 xa0 +a1 -a1 +b0 -b0", Seen(1, 0, 1, 0, 0)),
        ("+a0 -a0 +a1 -a1 +b0 xb0", Seen(1, 0, 0, 0, 0)),
        ("+a0 -a0 +a1 -a1 +b0 -b0 +b7 xb7", Seen(0, 1, 0, 0, 0)),
    ],
)
def test_a_night_is_judged_by_the_calls(text: str, found: Seen) -> None:
    of_partition = {place: name for place, name in EXPECTED.items() if place[0] == 0}
    assert seen(calls(text), of_partition) == found
