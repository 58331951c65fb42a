"""Whether a trial overloaded the brokers, and which signals say so.

Overload is what Dropbox took for it: request handler threads idle for less than a fifth of their
time, or in-sync replicas that keep changing. Who can't ask the brokers goes by what clients see.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from drainer.limits.search.point import Judgement, Point, Signals, Verdict

Said = tuple[str, ...]  # sentences on what is amiss, or none


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as overload; shares are of time unless said otherwise.

    Attributes:
        handlers_idle_least: request handlers idle less than this are overloaded (JMX).
        isr_changing_most: in-sync replicas changing for more than this.
        round_trip_factor: a round trip this many times the unloaded one is late,
        round_trip_over_ms: if it is also longer by this many ms.
        falling_behind_most: of the messages sent, that the slowest group may leave behind.
        throttled_most: brokers throttling clients for more than this: a quota is a limit, too.
        errors_most: of the messages, that may be refused or time out.
        clients_busy_most: of one core, from which on clients are no witnesses of the brokers.
        pace_shortfall_most: of the rate that was to be sent, that may be missing.
        queue_ms_most: messages that wait longer in producers are held up.
        window_s_least: a shorter window can show overload, but never that there is none.
    """

    handlers_idle_least: float = 0.20
    isr_changing_most: float = 0.5
    round_trip_factor: float = 5.0
    round_trip_over_ms: float = 20.0
    falling_behind_most: float = 0.05
    throttled_most: float = 0.05
    errors_most: float = 0.001
    clients_busy_most: float = 0.90
    pace_shortfall_most: float = 0.05
    queue_ms_most: float = 200.0
    window_s_least: float = 5.0


def judge(
    point: Point,
    signals: Signals,
    baseline_round_trip_ms: float,
    thresholds: Thresholds,
) -> Judgement:
    """The verdict on a trial, and why. ``baseline_round_trip_ms`` is that of unloaded brokers.

    What brokers say of themselves is overload whatever clients look like: handlers not idle,
    replicas changing, clients throttled. Without JMX late answers and consumers that fall behind
    are overload as well; with it only if also the rate was not reached, for handlers that are idle
    may stand behind a network or disk that is not. Signals that busy clients give of brokers are
    none. A rate that was not reached is never safe: when brokers look fine it was the clients.
    """
    if isnan(signals.sent_per_s):
        return Judgement(Verdict.UNCLEAR, ("nobody measured what was sent",))
    has_jmx = signals.handlers_idle is not None
    idle = (f"request handlers idle {_percent(signals.handlers_idle)}",) if has_jmx else ()
    trip, unloaded = _ms(signals.round_trip_ms), f"({_ms(baseline_round_trip_ms)} without load)"
    answered = () if isnan(signals.round_trip_ms) else (f"round trip {trip} {unloaded}",)
    short, behind = _short(point, signals, thresholds), _behind(signals, thresholds)
    late = _late(point, signals, baseline_round_trip_ms, thresholds)
    failed = _failed(signals, thresholds)
    verdict: Verdict | None = None
    said: Said = ()
    if told := _brokers_say(signals, thresholds):
        verdict, said = Verdict.OVERLOADED, told
    elif signals.clients_busy > thresholds.clients_busy_most:
        # A process without time measures its own waiting as the brokers'.
        if found := short + behind + failed + (() if has_jmx else late):
            busy = f"a client is busy {_percent(signals.clients_busy)} of a core"
            verdict, said = Verdict.CLIENTS, (busy, *found)
    elif failed:
        verdict, said = Verdict.OVERLOADED, failed + late + short
    elif has_jmx:
        if missing := short + behind:
            # Handlers are not all there is of a broker.
            verdict = Verdict.OVERLOADED if late else Verdict.CLIENTS
            said = late + missing + idle
    elif late or behind:
        verdict, said = Verdict.OVERLOADED, late + behind + short
    elif found := short + _queued(signals, thresholds):
        verdict, said = Verdict.CLIENTS, found + answered
    if verdict is None:
        unknown = _unknown(signals, thresholds)
        verdict = Verdict.UNCLEAR if unknown else Verdict.SAFE
        said = unknown or idle + answered
    return Judgement(verdict, said)


def _brokers_say(seen: Signals, limits: Thresholds) -> Said:
    found = []
    idle, least = seen.handlers_idle, limits.handlers_idle_least
    if idle is not None and idle < least:
        found.append(f"request handlers idle {_percent(idle)}, under {_percent(least)}")
    for share, most, what in (
        (seen.isr_changing, limits.isr_changing_most, "in-sync replicas changing"),
        (seen.throttled, limits.throttled_most, "brokers throttled clients"),
    ):
        if share is not None and share > most:
            found.append(f"{what} {_percent(share)} of the time, over {_percent(most)}")
    return tuple(found)


def _short(point: Point, seen: Signals, limits: Thresholds) -> Said:
    wanted, sent = point.messages_per_s, seen.sent_per_s
    if sent >= (1 - limits.pace_shortfall_most) * wanted:
        return ()
    return (f"{sent:,.0f} of {wanted:,.0f} messages/s were sent",)


def _late(point: Point, seen: Signals, baseline_ms: float, limits: Thresholds) -> Said:
    if seen.sent_per_s <= 0:
        return ("no message was acknowledged",) if point.producers else ()
    most = max(baseline_ms * limits.round_trip_factor, baseline_ms + limits.round_trip_over_ms)
    if not seen.round_trip_ms > most:
        return ()
    unloaded = f"({_ms(baseline_ms)} without load)"
    return (f"round trip {_ms(seen.round_trip_ms)}, over {_ms(most)} {unloaded}",)


def _behind(seen: Signals, limits: Thresholds) -> Said:
    most = limits.falling_behind_most
    if not seen.falling_behind > most:
        return ()
    share = _percent(seen.falling_behind)
    return (f"consumers fall behind by {share} of what is sent, over {_percent(most)}",)


def _failed(seen: Signals, limits: Thresholds) -> Said:
    handed_in = seen.errors + seen.sent_per_s * seen.window_s
    if not seen.errors or seen.errors <= limits.errors_most * handed_in:
        return ()
    return (f"{seen.errors:,} messages were refused or timed out",)


def _queued(seen: Signals, limits: Thresholds) -> Said:
    if not seen.queue_ms > limits.queue_ms_most:
        return ()
    return (f"messages wait {_ms(seen.queue_ms)} in producers",)


def _unknown(seen: Signals, limits: Thresholds) -> Said:
    """What would have to be known of a trial before it is called safe."""
    if seen.window_s < limits.window_s_least:
        return (f"observed for {seen.window_s:.3g} s only, under {limits.window_s_least:g} s",)
    measured = {
        "throttling": seen.throttled,
        "consumers": seen.falling_behind,
        "round trip": seen.round_trip_ms if seen.handlers_idle is None else 0.0,
        "clients": seen.clients_busy,
    }
    return tuple(f"{name}: not measured" for name, value in measured.items() if isnan(value))


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.3g}%"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
