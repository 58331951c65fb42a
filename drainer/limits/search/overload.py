"""Decides whether a trial overloaded the brokers, and names the signals that show it.

Overload is what Dropbox took for it: the request handler threads are idle for less than a fifth of
their time, or the in-sync replicas keep changing. Without JMX, the clients' measurements decide.
"""

from __future__ import annotations

from drainer.limits.search.trial import Point, Signals, Verdict

Reasons = tuple[str, ...]  # Sentences on what is wrong; empty when nothing is.

# Request handlers (JMX) that are idle for a smaller share of their time are overloaded.
HANDLERS_IDLE_LEAST = 0.20
# In-sync replicas may be changing, or incomplete, for at most this share of the window.
ISR_CHANGING_MOST = 0.5
# Brokers may throttle clients in at most this share of the samples: a quota is a limit, too.
THROTTLED_MOST = 0.05
# A round trip is late if it takes this many times the unloaded one, and this much longer as well.
ROUND_TRIP_FACTOR = 5.0
ROUND_TRIP_OVER_MS = 20.0
# The slowest consumer group may fall behind by at most this share of the messages that are sent.
FALLING_BEHIND_MOST = 0.05
# At most this share of the messages may be refused or time out.
ERRORS_MOST = 0.001
# At most this share of the requested rate may be missing.
PACE_SHORTFALL_MOST = 0.05
# A client process that uses a larger share of a core measures itself, not the brokers.
CLIENTS_BUSY_MOST = 0.90
# Messages that wait longer than this in their producers are held up by the clients.
QUEUE_MS_MOST = 200.0
# A shorter window can show overload, but never that there is none.
WINDOW_S_LEAST = 5.0


def judge(
    point: Point, signals: Signals, baseline_round_trip_ms: float
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on a trial, and the reasons for it.

    ``baseline_round_trip_ms`` is the round trip of brokers without load.

    Three metrics of the brokers decide, however busy the clients are: request handlers that are not
    idle, in-sync replicas that change, and throttling. When the clients themselves are busy, their
    other measurements say nothing about the brokers.

    Without JMX, late answers and consumers that fall behind count as overload. With JMX they do so
    only if the requested rate was not reached either, because idle handlers may stand behind a
    network or a disk that is full.

    A trial that did not reach its rate is never safe. If the brokers look fine, the clients were
    the bottleneck.
    """
    has_jmx = signals.handlers_idle is not None
    idle = (f"request handlers idle {_percent(signals.handlers_idle)}",) if has_jmx else ()
    unloaded = f"({_ms(baseline_round_trip_ms)} without load)"
    trip_ms = signals.round_trip_ms
    answered = () if trip_ms is None else (f"round trip {_ms(trip_ms)} {unloaded}",)
    short, behind, failed = _short(point, signals), _behind(signals), _failed(signals)
    late = _late(point, signals, baseline_round_trip_ms)
    verdict: Verdict | None = None
    reasons: Reasons = ()
    if overload := _broker_reasons(signals):
        verdict, reasons = Verdict.OVERLOADED, overload
    elif signals.clients_busy > CLIENTS_BUSY_MOST:
        # A process without processor time takes its own waiting for that of the brokers.
        if found := short + behind + failed + (() if has_jmx else late):
            busy = f"a client is busy {_percent(signals.clients_busy)} of a core"
            verdict, reasons = Verdict.CLIENTS, (busy, *found)
    elif failed:
        verdict, reasons = Verdict.OVERLOADED, failed + late + short
    elif has_jmx:
        if missing := short + behind:
            verdict = Verdict.OVERLOADED if late else Verdict.CLIENTS
            reasons = late + missing + idle
    elif late or behind:
        verdict, reasons = Verdict.OVERLOADED, late + behind + short
    elif found := short + _queued(signals):
        verdict, reasons = Verdict.CLIENTS, found + answered
    if verdict is None:
        unknown = _unknown(signals)
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


def _failed(seen: Signals) -> Reasons:
    handed_in = seen.errors + seen.sent_per_s * seen.window_s
    if not seen.errors or seen.errors <= ERRORS_MOST * handed_in:
        return ()
    return (f"{seen.errors:,} messages were refused or timed out",)


def _queued(seen: Signals) -> Reasons:
    if seen.queue_ms <= QUEUE_MS_MOST:
        return ()
    return (f"messages wait {_ms(seen.queue_ms)} in producers",)


def _unknown(seen: Signals) -> Reasons:
    """Describe what was not measured, and without which no trial is called safe."""
    if seen.window_s < WINDOW_S_LEAST:
        return (f"observed for {seen.window_s:.3g} s only, under {WINDOW_S_LEAST:g} s",)
    found = []
    if seen.falling_behind is None:
        found.append("consumers: not measured")
    if seen.round_trip_ms is None and seen.handlers_idle is None:
        found.append("round trip: not measured")
    return tuple(found)


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.3g}%"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
