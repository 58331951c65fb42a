"""The circuit breaker: opens when the downstream is away, and closes when it answers."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from drainer.message import SubMessage
from drainer.policy.breaker import FAILURES, PROBE_FIRST_S, PROBE_MOST_S, SHARE, WINDOW_S, Breaker


def fail(breaker: Breaker, times: int, *, done: int = 1, now_s: float = 0.0) -> list[bool]:
    """So many first attempts, each of another sub-message."""
    return [breaker.failed(SubMessage(), done, 999, now_s) for _ in range(times)]


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker()
    fail(breaker, FAILURES, now_s=now_s)
    assert breaker.open
    return breaker


def probed(breaker: Breaker) -> SubMessage:
    probe = SubMessage()
    breaker.start_probe(probe)
    return probe


def test_probes_back_off_up_to_the_longest_wait() -> None:
    breaker = opened()
    waits: list[float] = []
    for number in range(8):
        probe = probed(breaker)
        breaker.failed(SubMessage(), 1, 999, float(number))
        assert breaker.probe_at_s is None, "one at a time, whatever others show"
        breaker.failed(probe, 1, 999, float(number))
        assert breaker.probe_at_s is not None
        waits.append(breaker.probe_at_s - number)
    assert waits[:3] == [2 * PROBE_FIRST_S, 4 * PROBE_FIRST_S, 8 * PROBE_FIRST_S]
    assert waits[-1] == PROBE_MOST_S


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = opened()
    probe = probed(breaker)
    assert not breaker.ended(SubMessage()), "it was started before"
    assert breaker.open
    assert breaker.ended(probe)
    assert not breaker.open
    assert breaker.probe_at_s is None
    assert not breaker.ended(probe), "only once"


def test_once_closed_it_counts_from_nothing() -> None:
    breaker = opened()
    breaker.ended(probed(breaker))
    assert fail(breaker, FAILURES - 1) == [False] * (FAILURES - 1)
    assert fail(breaker, 1) == [True]
    assert breaker.opened == 2
    assert breaker.probe_at_s == PROBE_FIRST_S, "and waits as at first"


def test_a_probe_that_asks_to_be_called_later_decides_nothing() -> None:
    breaker = opened()
    breaker.undecided(SubMessage(), 3.0)
    assert breaker.probe_at_s == PROBE_FIRST_S
    breaker.undecided(probed(breaker), 3.0)
    assert breaker.open
    assert breaker.probe_at_s == 3.0 + PROBE_FIRST_S, "no failure, so no longer wait"


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from(["ok", "first", "again"]), st.floats(0, 1)),
        min_size=FAILURES,
        max_size=2 * FAILURES,
    ),
    st.sampled_from([0.0, 0.01, 0.5, 0.9]),
)
@example([("ok", 0.0), ("first", 0.0)] * FAILURES, 0.0)
def test_it_opens_only_when_enough_of_the_last_first_attempts_failed(
    events: list[tuple[str, float]], calm: float
) -> None:
    """Against a naive account of all that happened."""
    breaker = Breaker()
    now_s, done = 0.0, 0
    firsts: list[tuple[float, int]] = []
    for kind, wait_s in events:
        now_s += wait_s
        if kind == "ok" and wait_s >= calm:
            done += 1
            continue
        sub = SubMessage()
        if kind == "again":
            breaker.failing(sub, now_s).failures = 1
        else:
            firsts.append((now_s, done))
        opens = breaker.failed(sub, done, 999, now_s)
        last = firsts[-FAILURES:]
        enough = kind != "again" and len(last) == FAILURES
        if enough:
            succeeded = done - last[0][1]
            soon = now_s - last[0][0] <= WINDOW_S
            enough = SHARE * (FAILURES + succeeded) <= FAILURES and (soon or not succeeded)
        assert opens == enough
        if opens:
            return
