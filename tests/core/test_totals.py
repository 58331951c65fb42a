"""What a task knows of the others, by totals of all that count its own part too, and late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drainer.policy.failures import Totals

STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=40)


def all_of(count: int) -> Totals:
    return Totals(count, count, count)


@given(STEPS)
def test_what_others_did_is_never_overstated_and_known_at_rest(
    steps: list[tuple[int, int, bool]],
) -> None:
    own = others = shown = 0
    known = Totals()
    for mine, theirs, shows in steps:
        own, others = own + mine, others + theirs
        if shows:
            shown = own
        before, known = known, known.beside(all_of(own), all_of(shown + others))
        assert before.done <= known.done <= others
    assert known.beside(all_of(own), all_of(own + others)) == all_of(others)
