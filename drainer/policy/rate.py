"""The rate limit of `--rate`: how many calls may start per second."""

from __future__ import annotations

BURST_S = 0.05  # The starts of this many seconds may come at once, because event loops are late.


class Rate:
    """A token bucket: ``per_s`` calls may start per second, with a small burst."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self.per_s = per_s
        self._most = max(1.0, per_s * BURST_S)
        self._tokens = 1.0
        self._at_s = now_s

    def change(self, per_s: float, now_s: float) -> None:
        """Change the rate from now on."""
        self._tokens, self._at_s = self._tokens_at(now_s), now_s
        self.per_s = per_s
        self._most = max(1.0, per_s * BURST_S)

    def allowed(self, now_s: float) -> int:
        """Return how many calls may start now."""
        return int(self._tokens_at(now_s) + 1e-9)

    def start(self, now_s: float) -> None:
        """Take the token of a call that starts."""
        self._tokens, self._at_s = self._tokens_at(now_s) - 1, now_s

    def next_at_s(self, now_s: float) -> float:
        """Return when the next call may start."""
        return now_s + max(0.0, 1 - self._tokens_at(now_s)) / self.per_s

    def _tokens_at(self, now_s: float) -> float:
        return min(self._most, self._tokens + (now_s - self._at_s) * self.per_s)
