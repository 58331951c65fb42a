"""The limit of a drain: what keeps it from being faster, and what can be done about that."""

from __future__ import annotations

from enum import Enum

from drainer.model.status import Status, TimingStatus
from drainer.policy.concurrency_limit import FULL
from drainer.text.escape import command, shorten
from drainer.view import caps, figures

BUSY = 0.95  # If this share of the workers is busy, all of them count as busy.
# From these shares on, a drain counts as limited by --rate, a full buffer, or one lane.
AT_RATE = AT_BUFFER = AT_LANE = 0.9
RISING_S = 10.0  # For this long, the mean rate of a drain may still rise.
# The downstream counts as slowed if the median latency is this many times that of the start, and
# longer by this many seconds.
SLOWER, SLOWER_S = 2.0, 0.005
# The downstream counts as hanging if no call succeeds in so many seconds, which are those of the
# current rate, although 99% of the calls took less.
HANGS_S = 5.0
# From this many seconds on, an outage may be the fault of the messages and not of the downstream.
LASTING_S = 60.0
SHOWN = 40  # The characters of a sub-key that are shown.


class Bottleneck(Enum):
    """What can limit a drain. Each has a text for people, and the advice on what to do about it.

    Text and advice are format strings. ``_in_words`` fills in the status and further values.
    """

    PAUSE = "the pause", "`{unpause}` ends it"
    OUTAGE = ("failures: drainer tries one sub-message at a time until one succeeds", "{breaker}")
    # For example, brokers don't answer. The trouble is always shown beside the limit.
    TROUBLE = "the trouble: drainer waits until it is over", ""
    PROCESSOR = (
        "the processor: {each} uses {0.limits.processor.used:.0%} of a core{waits}",
        "{cheaper}; more concurrency does not help",
    )
    HOT_LANE = (
        "the lane of {lane} wait, one at a time",
        "a handler with `coalesce` folds them; more concurrency does not help",
    )
    RATE = "--rate", "`{set} rate=…` raises it"
    WRITE_CAP = "the brokers' limits: at most {write_cap} written", ""
    BLOCKED = "the handler: it blocks the event loop at {0.health.blocked_by}", "await it there"
    HANGS = (
        "the downstream: no call has succeeded in the last 5s, and p50 was {p50}",
        "find out why it does not answer; more calls at once do not help",
    )
    SLOWED = (
        "the downstream: p50 went from {p50_before} to {p50_now} since the start",
        "find out what slows it down; more calls at once may slow it down further",
    )
    HANDLER = "the handler: every worker is busy", "{more_calls}"
    RETRIES = "retries: failed sub-messages wait for their next attempt", ""
    ENGINE = "{engine}", ""  # A limit that only this engine has.
    BARRIER = "barriers: {behind} wait for one, which waits for all before it", ""
    STARTS = "{machine}: lanes wait though workers are free", ""
    TAIL = "the tail: all is read, and the last lanes end", ""
    ORDER = "order: the buffer is full of few sub-keys, each one at a time", ""
    READ_CAP = "the brokers' limits: at most {read_cap} read", ""
    READING = "reading: workers wait for messages", ""


def limit_of(status: Status) -> Bottleneck:
    """Return what limits the drain now. More concurrency helps only if it is HANDLER."""
    progress, limits, failures = status.progress, status.limits, status.failures
    workers, engine = limits.workers_busy, status.engine_status
    eta_s, lane_s = progress.eta_s, progress.lane_s
    busy = workers >= BUSY * limits.concurrency
    all_read = all(part.position >= part.end for part in progress.partitions)
    full = limits.buffered_bytes >= AT_BUFFER * limits.buffer_bytes
    in_lane = max((waiting for _, waiting in limits.hottest), default=0)
    longest = bool(in_lane and eta_s and lane_s and lane_s >= AT_LANE * eta_s)
    only_retries = bool(failures.waiting) and not (workers or limits.lanes_ready)
    # The mean rate rises for some seconds. Until then, lanes that wait though workers are free, and
    # not for retries, tell that they wait for --rate.
    held_up = limits.lanes_ready > 0 and workers + failures.waiting < BUSY * limits.concurrency
    held_up &= status.timing.elapsed_s < RISING_S
    at_rate = held_up or progress.rate_now >= AT_RATE * (failures.rate or 0)
    alone = workers <= 2 and not limits.lanes_ready and in_lane > 1
    signs = {
        Bottleneck.PAUSE: status.control.paused is not None,
        Bottleneck.OUTAGE: failures.in_outage,
        Bottleneck.TROUBLE: status.health.is_kept_waiting and not busy,
        Bottleneck.PROCESSOR: limits.processor.used + limits.processor.waited >= FULL,
        Bottleneck.HOT_LANE: longest or ((all_read or full) and alone),
        Bottleneck.RATE: failures.rate is not None and at_rate,
        Bottleneck.WRITE_CAP: busy and status.caps.write_binds,
        Bottleneck.BLOCKED: busy and status.health.is_blocked,
        Bottleneck.HANGS: busy and _hangs(status),
        Bottleneck.SLOWED: busy and _is_slowed(status.timing),
        Bottleneck.HANDLER: busy,
        Bottleneck.RETRIES: only_retries
        or failures.waiting >= max(1, limits.concurrency - workers),
        Bottleneck.ENGINE: engine is not None and engine.limit(status) is not None,
        # Barriers come before the machine: right after one, many lanes are ready at once, and soon
        # the next barrier stops them.
        Bottleneck.BARRIER: limits.behind_barriers > 1,
        Bottleneck.STARTS: limits.lanes_ready > limits.concurrency,
        Bottleneck.TAIL: all_read,
        Bottleneck.ORDER: full,
        Bottleneck.READ_CAP: status.caps.read_binds,
    }
    return next((limit for limit, binds in signs.items() if binds), Bottleneck.READING)


def _hangs(status: Status) -> bool:
    latency = status.timing.latency
    return not status.progress.rate_now and latency is not None and latency.p99_s < HANGS_S


def _is_slowed(timing: TimingStatus) -> bool:
    before_s, now = timing.p50_at_start_s, timing.latency_recent
    if before_s is None or now is None:
        return False
    return now.p50_s >= max(SLOWER * before_s, before_s + SLOWER_S)


def limit(status: Status) -> str:
    """Return in a few words what keeps the drain from being faster."""
    return _in_words(limit_of(status).value[0], status)


def advice(status: Status) -> str:
    """Return what can be done about the limit; empty if nothing can."""
    return _in_words(limit_of(status).value[1], status)


def _in_words(text: str, status: Status) -> str:
    limits, auto = status.limits, status.limits.auto
    overall, recent = status.timing.latency, status.timing.latency_recent
    key, waiting = next(iter(limits.hottest), ("", 0))
    set_ = command("set", status.plan)
    more_calls = f"`{set_} concurrency=…`, if the downstream can take more"
    if auto is not None:  # --concurrency auto raises it by itself, up to its maximum.
        more_calls = more_calls.replace("…", "auto:…") if auto.limit == auto.most else ""
    here, load, outage = status.engine_status is None, limits.processor, status.failures.outage
    lasts = outage is not None and outage.for_s >= LASTING_S
    breaker = f"if only these messages are bad, `{set_} breaker=off` gives them up"
    waits = f", and waits for one {load.waited:.0%} of the time" if load.waited >= 0.01 else ""
    cores = "resume with --engine spark for more cores" if here else "more cores"
    cheaper = f"a cheaper `split` or `handle`, or {cores}"
    if load.waited > load.used:
        waits += ", which other processes or a limit on this one take"
        where = "here, or resume on another machine" if here else "beside the executors"
        cheaper = f"end what else runs {where}, or raise the limit"
    return text.format(
        status,
        set=set_,
        unpause=command("unpause", status.plan),
        each="drainer" if here else "each task",
        waits=waits,
        cheaper=cheaper,
        breaker=breaker if lasts else "",
        machine="this machine" if here else "the executors",
        engine=None if status.engine_status is None else status.engine_status.limit(status),
        behind=figures.counted(limits.behind_barriers, "sub-message"),
        lane=f"{shorten(key, SHOWN)}, where {figures.count(waiting)}",
        read_cap=status.caps.read_cap and caps.words(status.caps.read_cap),
        write_cap=status.caps.write_cap and caps.words(status.caps.write_cap),
        more_calls=more_calls,
        p50=figures.duration(None if overall is None else overall.p50_s),
        p50_before=figures.duration(status.timing.p50_at_start_s),
        p50_now=figures.duration(None if recent is None else recent.p50_s),
    )
