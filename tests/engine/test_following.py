"""The lag that a drain that follows its log tells: never less than it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drainer.engine import following
from drainer.engine.following import LagWatch


def test_the_time_is_unknown_until_the_first_end_is_reached() -> None:
    watch = LagWatch()
    watch.observe(10.0, {0: 100, 1: 50})

    assert watch.lag(10.0, {0: 99, 1: 50}).seconds is None
    watch.observe(12.0, {0: 120, 1: 50})
    lag = watch.lag(13.0, {0: 110, 1: 50})

    assert (lag.messages, lag.seconds) == (10, 3.0)
    assert watch.lag(14.0, {0: 120, 1: 50}).seconds == 2.0


steps = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 2)), min_size=1, max_size=60
)


@given(steps, st.integers(2, 50))
def test_what_was_written_before_that_time_is_done(
    steps: list[tuple[int, int, float]], kept: int
) -> None:
    before, following.LOOKS_MOST = following.LOOKS_MOST, kept
    try:
        watch, end, done, now_s, written = LagWatch(), 0, 0, 0.0, list[float]()
        for added, finished, took_s in steps:
            written += [now_s] * added
            end += added
            now_s += took_s
            done = min(end, done + finished)
            watch.observe(now_s, {0: end})
            lag = watch.lag(now_s, {0: done})
            assert lag.messages == end - done
            if done < end and lag.seconds is not None:
                assert lag.seconds >= 0
                assert done >= sum(at_s < now_s - lag.seconds - 1e-9 for at_s in written)
    finally:
        following.LOOKS_MOST = before
