"""A terminal of the command's own: what a person sees on it, and types."""

from __future__ import annotations

import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from command.process import ENDS_WITHIN_S, begin

CTRL_C, CTRL_D = "\x03", "\x04"
READ_S = 0.1


class TerminalSession:
    """``drainer`` on a pseudo-terminal, all three streams of it; a context manager."""

    def __init__(
        self, words: list[str], folder: Path, env: Mapping[str, str], by: tuple[str, ...] = ()
    ) -> None:
        environment = {**env, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        self._screen, screen = os.openpty()
        # Not pty.fork(): a fork beside librdkafka's threads may find a lock taken for ever.
        streams = (screen, screen, screen)
        self._process = begin(words, folder, environment, streams, by, owns_terminal=True)
        os.close(screen)
        self.pid = self._process.pid
        self.seen = ""
        self.code: int | None = None

    def __enter__(self) -> TerminalSession:
        return self

    def __exit__(self, *_: object) -> None:
        if self.code is None:
            self._process.kill()
            self._process.wait()
        os.close(self._screen)

    @property
    def modes(self) -> list[object]:
        """Settings of the terminal for what is typed, as they are now."""
        return list(termios.tcgetattr(self._screen)[:4])

    def types(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def shows(self, words: str) -> None:
        """Wait until these words were on the screen."""
        self.until(lambda: words in self.seen, f"{words!r} is on the screen")

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Read on until something happened."""
        until = time.monotonic() + ENDS_WITHIN_S
        while not happened():
            assert self._read(), f"it ended before {what}:\n{self.seen}"
            assert time.monotonic() < until, f"not in time: {what}:\n{self.seen}"

    def answers(self, question: str, answers: Iterable[str]) -> None:
        """Read to the end, and answer each such question; with ``y`` when no answer is left."""
        given, requested = iter(answers), self.seen.count(question)
        while self._read():
            if self.seen.count(question) > requested:
                requested += 1
                self.types(next(given, "y") + "\n")

    def ends(self, code: int) -> str:
        """Wait for its end, make sure of its exit code, and give all that was on the screen."""
        self.ended()
        assert self.code == code, f"exit {self.code}, not {code}\n{self.seen}"
        assert "Traceback" not in self.seen
        return self.seen

    def ended(self) -> None:
        """Wait for its end, however it ends."""
        until = time.monotonic() + ENDS_WITHIN_S
        while self._read():
            assert time.monotonic() < until, self.seen
        self.code = self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def _read(self) -> bool:
        if not select.select([self._screen], [], [], READ_S)[0]:
            return True
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)
