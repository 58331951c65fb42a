"""Detects whether a trial overloaded the brokers, and by which signals.

Overload is what Dropbox took for it: request handler threads idle for less than a fifth of their
time, or in-sync replicas that keep changing. Without JMX, the clients' measurements decide.
"""

from __future__ import annotations

from drainer.limits.search.trial import Point, Signals, Verdict

Reasons = tuple[str, ...]  # sentences on what is amiss, or none

# What counts as overload; shares are of time unless reasons otherwise.
HANDLERS_IDLE_LEAST = 0.20  # request handlers that are idle less are overloaded (JMX)
ISR_CHANGING_MOST = 0.5  # in-sync replicas changing
ROUND_TRIP_FACTOR = 5.0  # a round trip this many times the unloaded one is late,
ROUND_TRIP_OVER_MS = 20.0  # if it is also longer by this much
FALLING_BEHIND_MOST = 0.05  # of the messages sent, that the slowest group may leave behind
OLD_SHORTFALL_MOST = 0.05  # of the old messages that were to be read, that may be missing
THROTTLED_MOST = 0.05  # brokers throttling clients: a quota is a limit, too
ERRORS_MOST = 0.001  # of the messages, that may be refused or time out
CLIENTS_BUSY_MOST = 0.90  # of one core; busier clients measure themselves, not the brokers
PACE_SHORTFALL_MOST = 0.05  # of the rate that was to be sent, that may be missing
QUEUE_MS_MOST = 200.0  # messages that wait longer in producers are held up
WINDOW_S_LEAST = 5.0  # a shorter window can show overload, but never that there is none


def judge(
    point: Point, signals: Signals, baseline_round_trip_ms: float
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict on a trial, and why. ``baseline_round_trip_ms`` is that of unloaded brokers.

    Metrics of the brokers decide whatever clients look like: handlers not idle, replicas
    changing, clients throttled. Without JMX late answers and consumers that fall behind
    are overload as well; with it only if also the rate was not reached, for handlers that are idle
    may stand behind a network or disk that is not. Signals that busy clients give of brokers are
    none. A rate that was not reached is never safe: when brokers look fine it was the clients.
    Old messages come from disks, which idle handlers do not show.
    """
    has_jmx = signals.handlers_idle is not None
    idle = (f"request handlers idle {_percent(signals.handlers_idle)}",) if has_jmx else ()
    unloaded = f"({_ms(baseline_round_trip_ms)} without load)"
    trip_ms = signals.round_trip_ms
    answered = () if trip_ms is None else (f"round trip {_ms(trip_ms)} {unloaded}",)
    short, behind, failed = _short(point, signals), _behind(signals), _failed(signals)
    late, old = _late(point, signals, baseline_round_trip_ms), _old(point, signals)
    verdict: Verdict | None = None
    reasons: Reasons = ()
    if overload := _broker_reasons(signals):
        verdict, reasons = Verdict.OVERLOADED, overload
    elif signals.clients_busy > CLIENTS_BUSY_MOST:
        # A process without time measures its own waiting as the brokers'.
        if found := short + behind + failed + old + (() if has_jmx else late):
            busy = f"a client is busy {_percent(signals.clients_busy)} of a core"
            verdict, reasons = Verdict.CLIENTS, (busy, *found)
    elif failed or old:
        verdict, reasons = Verdict.OVERLOADED, failed + old + late + short
    elif has_jmx:
        if missing := short + behind:
            # Handlers are not all there is of a broker.
            verdict = Verdict.OVERLOADED if late else Verdict.CLIENTS
            reasons = late + missing + idle
    elif late or behind:
        verdict, reasons = Verdict.OVERLOADED, late + behind + short
    elif found := short + _queued(signals):
        verdict, reasons = Verdict.CLIENTS, found + answered
    if verdict is None:
        unknown = _unknown(point, signals)
        verdict = Verdict.UNCLEAR if unknown else Verdict.SAFE
        reasons = unknown or idle + answered
    return verdict, reasons


def _broker_reasons(seen: Signals) -> Reasons:
    found = []
    idle = seen.handlers_idle
    if idle is not None and idle < HANDLERS_IDLE_LEAST:
        least = _percent(HANDLERS_IDLE_LEAST)
        found.append(f"request handlers idle {_percent(idle)}, under {least}")
    for share, most, what in (
        (seen.isr_changing, ISR_CHANGING_MOST, "in-sync replicas changing"),
        (seen.throttled, THROTTLED_MOST, "brokers throttled clients"),
    ):
        if share is not None and share > most:
            found.append(f"{what} {_percent(share)} of the time, over {_percent(most)}")
    return tuple(found)


def _short(point: Point, seen: Signals) -> Reasons:
    wanted, sent = point.messages_per_s, seen.sent_per_s
    if sent >= (1 - PACE_SHORTFALL_MOST) * wanted:
        return ()
    return (f"{sent:,.0f} of {wanted:,.0f} messages/s were sent",)


def _late(point: Point, seen: Signals, baseline_ms: float) -> Reasons:
    if seen.sent_per_s <= 0:
        return ("no message was acknowledged",) if point.producers else ()
    most = max(baseline_ms * ROUND_TRIP_FACTOR, baseline_ms + ROUND_TRIP_OVER_MS)
    if seen.round_trip_ms is None or seen.round_trip_ms <= most:
        return ()
    unloaded = f"({_ms(baseline_ms)} without load)"
    return (f"round trip {_ms(seen.round_trip_ms)}, over {_ms(most)} {unloaded}",)


def _behind(seen: Signals) -> Reasons:
    if seen.falling_behind is None or seen.falling_behind <= FALLING_BEHIND_MOST:
        return ()
    share, most = _percent(seen.falling_behind), _percent(FALLING_BEHIND_MOST)
    return (f"consumers fall behind by {share} of what is sent, over {most}",)


def _old(point: Point, seen: Signals) -> Reasons:
    wanted, read = point.old_bytes_per_s, seen.old_bytes_per_s
    if read is None or read >= (1 - OLD_SHORTFALL_MOST) * wanted:
        return ()
    return (f"{read / 1e6:,.2f} of {wanted / 1e6:,.2f} MB/s of old messages were read",)


def _failed(seen: Signals) -> Reasons:
    handed_in = seen.errors + seen.sent_per_s * seen.window_s
    if not seen.errors or seen.errors <= ERRORS_MOST * handed_in:
        return ()
    return (f"{seen.errors:,} messages were refused or timed out",)


def _queued(seen: Signals) -> Reasons:
    if seen.queue_ms <= QUEUE_MS_MOST:
        return ()
    return (f"messages wait {_ms(seen.queue_ms)} in producers",)


def _unknown(point: Point, seen: Signals) -> Reasons:
    """Missing measurements, without which a trial is not called safe."""
    if seen.window_s < WINDOW_S_LEAST:
        return (f"observed for {seen.window_s:.3g} s only, under {WINDOW_S_LEAST:g} s",)
    found = []
    if seen.falling_behind is None:
        found.append("consumers: not measured")
    if seen.old_bytes_per_s is None and point.old_groups:
        found.append("old messages: not measured")
    if seen.round_trip_ms is None and seen.handlers_idle is None:
        found.append("round trip: not measured")
    return tuple(found)


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.3g}%"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
