"""Whether a trial overloaded the brokers, and which signals say so.

Overload is what Dropbox took for it: request handler threads idle for less than a fifth of their
time, or in-sync replicas that keep changing. Who can't ask the brokers goes by what clients see.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from drainer.limits.search.point import Judgement, Point, Signals, Verdict


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
    seen = _Seen(point, signals, baseline_round_trip_ms, thresholds)
    if told := seen.brokers_say():
        return Judgement(Verdict.OVERLOADED, told)
    if seen.busy():
        found = _of_busy_clients(seen)
    elif failed := seen.failed():
        found = Judgement(Verdict.OVERLOADED, failed + seen.late() + seen.short())
    else:
        found = _with_jmx(seen) if seen.has_jmx else _without_jmx(seen)
    if found is not None:
        return found
    if unknown := seen.too_little():
        return Judgement(Verdict.UNCLEAR, unknown)
    return Judgement(Verdict.SAFE, seen.idle() + seen.answered())


def _of_busy_clients(seen: _Seen) -> Judgement | None:
    # A process without time measures its own waiting as the brokers'.
    unsure = () if seen.has_jmx else seen.late()
    found = seen.short() + seen.behind() + seen.failed() + unsure
    return Judgement(Verdict.CLIENTS, seen.busy() + found) if found else None


def _with_jmx(seen: _Seen) -> Judgement | None:
    missing = seen.short() + seen.behind()
    if not missing:
        return None
    if late := seen.late():  # handlers are not all there is of a broker
        return Judgement(Verdict.OVERLOADED, late + missing + seen.idle())
    return Judgement(Verdict.CLIENTS, missing + seen.idle())


def _without_jmx(seen: _Seen) -> Judgement | None:
    if found := seen.late() + seen.behind():
        return Judgement(Verdict.OVERLOADED, found + seen.short())
    if found := seen.short() + seen.queued():
        return Judgement(Verdict.CLIENTS, found + seen.answered())
    return None


class _Seen:
    """Signals against thresholds: each method gives sentences on what is amiss, or none."""

    def __init__(
        self, point: Point, signals: Signals, baseline_ms: float, thresholds: Thresholds
    ) -> None:
        self.point = point
        self.signals = signals
        self.baseline_ms = baseline_ms
        self.thresholds = thresholds
        self.has_jmx = signals.handlers_idle is not None

    def brokers_say(self) -> tuple[str, ...]:
        found, least = [], self.thresholds.handlers_idle_least
        idle, changing = self.signals.handlers_idle, self.signals.isr_changing
        if idle is not None and idle < least:
            found.append(f"request handlers idle {_percent(idle)}, under {_percent(least)}")
        if changing is not None and changing > self.thresholds.isr_changing_most:
            found.append(
                f"in-sync replicas changing {_percent(changing)} of the time,"
                f" over {_percent(self.thresholds.isr_changing_most)}"
            )
        if self.signals.throttled > self.thresholds.throttled_most:
            found.append(
                f"brokers throttled clients {_percent(self.signals.throttled)} of the time,"
                f" over {_percent(self.thresholds.throttled_most)}"
            )
        return tuple(found)

    def short(self) -> tuple[str, ...]:
        wanted, sent = self.point.messages_per_s, self.signals.sent_per_s
        if sent >= (1 - self.thresholds.pace_shortfall_most) * wanted:
            return ()
        return (f"{sent:,.0f} of {wanted:,.0f} messages/s were sent",)

    def late(self) -> tuple[str, ...]:
        if self.signals.sent_per_s <= 0:
            return ("no message was acknowledged",) if self.point.producers else ()
        most = max(
            self.baseline_ms * self.thresholds.round_trip_factor,
            self.baseline_ms + self.thresholds.round_trip_over_ms,
        )
        if not self.signals.round_trip_ms > most:
            return ()
        return (
            f"round trip {_ms(self.signals.round_trip_ms)}, over {_ms(most)}"
            f" ({_ms(self.baseline_ms)} without load)",
        )

    def behind(self) -> tuple[str, ...]:
        most = self.thresholds.falling_behind_most
        if not self.signals.falling_behind > most:
            return ()
        share = _percent(self.signals.falling_behind)
        return (f"consumers fall behind by {share} of what is sent, over {_percent(most)}",)

    def failed(self) -> tuple[str, ...]:
        errors = self.signals.errors
        handed_in = errors + self.signals.sent_per_s * self.signals.window_s
        if not errors or errors <= self.thresholds.errors_most * handed_in:
            return ()
        return (f"{errors:,} messages were refused or timed out",)

    def busy(self) -> tuple[str, ...]:
        most = self.thresholds.clients_busy_most
        if not self.signals.clients_busy > most:
            return ()
        return (f"a client is busy {_percent(self.signals.clients_busy)} of a core",)

    def queued(self) -> tuple[str, ...]:
        if not self.signals.queue_ms > self.thresholds.queue_ms_most:
            return ()
        return (f"messages wait {_ms(self.signals.queue_ms)} in producers",)

    def too_little(self) -> tuple[str, ...]:
        """What would have to be known of a trial before it is called safe."""
        window_s, least_s = self.signals.window_s, self.thresholds.window_s_least
        if window_s < least_s:
            return (f"observed for {window_s:.3g} s only, under {least_s:g} s",)
        measured = {
            "throttling": self.signals.throttled,
            "consumers": self.signals.falling_behind,
            "round trip": 0.0 if self.has_jmx else self.signals.round_trip_ms,
            "clients": self.signals.clients_busy,
        }
        return tuple(f"{name}: not measured" for name, value in measured.items() if isnan(value))

    def idle(self) -> tuple[str, ...]:
        idle = self.signals.handlers_idle
        return () if idle is None else (f"request handlers idle {_percent(idle)}",)

    def answered(self) -> tuple[str, ...]:
        if isnan(self.signals.round_trip_ms):
            return ()
        without = f"({_ms(self.baseline_ms)} without load)"
        return (f"round trip {_ms(self.signals.round_trip_ms)} {without}",)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
