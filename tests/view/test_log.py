"""Standard error as a log: whatever is written there is one JSON object a line."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from builders import a_status, a_summary, counts
from drainer.errors import HandleFailed, LockHeld
from drainer.model.latency import Latency
from drainer.model.status import FailureStatus
from drainer.view.live import progress_view
from drainer.view.summary import account, show_summary
from drainer.view.terminal import LogTerminal, logging_as_json


class Log:
    """A log and what is written to it, line by line."""

    def __init__(self, *, quiet: bool = False, debug: bool = False) -> None:
        self._stream = io.StringIO()
        self._entered = logging_as_json(quiet=quiet, debug=debug, stderr=self._stream)

    def __enter__(self) -> tuple[LogTerminal, Log]:
        return self._entered.__enter__(), self

    def __exit__(self, *raised: Any) -> None:
        self._entered.__exit__(*raised)

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = self._stream.getvalue()
        assert text == "" or text.endswith("\n")
        found = [json.loads(line) for line in text.splitlines()]
        for line in found:
            assert list(line)[:3] == ["time", "level", "event"]
            assert line["level"] in ("debug", "info", "warning", "error")
            assert isinstance(line["message"], str)
            reported = datetime.fromisoformat(line["time"])
            assert reported.utcoffset() == timedelta(0)
            assert abs(datetime.now(UTC) - reported) < timedelta(minutes=1)
        return found

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]


def test_words_are_events_with_a_level_and_errors_have_their_code_and_hint() -> None:
    with Log() as (terminal, log):
        terminal.print_line("the finished plan is kept")
        terminal.print_line("")
        terminal.warn("retention is near")
        terminal.fail(LockHeld("another drain works for group g", hint="wait for it"))
        terminal.fail(RuntimeError("unexpected"))
        terminal.fail(KeyboardInterrupt())
        assert terminal.confirm("Drain orders?") is None
    with Log(debug=True) as (terminal, debugged):
        terminal.fail(HandleFailed("it failed", hint="fix it", cause=ValueError("bad document")))

    assert debugged.lines[0]["traceback"] == "ValueError: bad document"
    note, warning, locked, bug, interrupted = log.lines
    assert (note["level"], note["event"]) == ("info", "note")
    assert (warning["level"], warning["event"]) == ("warning", "warning")
    assert (locked["level"], locked["error"], locked["exit_code"]) == ("error", "LockHeld", 3)
    assert (locked["message"], locked["hint"]) == ("another drain works for group g", "wait for it")
    assert (bug["error"], bug["exit_code"]) == ("RuntimeError", 1)
    assert interrupted["exit_code"] == 4
    assert "traceback" not in locked | bug


def test_progress_is_reported_every_five_seconds_with_its_figures() -> None:
    latency = Latency.of(100, 0.02, [n / 1_000 for n in range(101)])
    now = a_status(partitions=20)
    with Log() as (terminal, log), progress_view(terminal) as view:
        for tenths in range(120):
            figures = {"latency": latency, "latency_recent": latency, "elapsed_s": tenths / 10}
            view.update(a_status(20, **figures))

    assert log.events() == ["begin", "progress", "progress", "progress"]
    line = log.lines[1]
    assert line["elapsed_s"] == 5.0
    assert line["sub_messages"] == now.progress.sub_messages.as_json()
    assert line["latency"] == line["latency_recent"]
    assert line["latency"] == {"mean_s": 0.02, "p50_s": 0.05, "p95_s": 0.095, "p99_s": 0.099}
    assert line["hottest"][0] == ["'doc-17'", 12_345]
    assert len(line["partitions"]) == 8
    assert line["partitions"][0]["watermark"] == now.progress.partitions[0].watermark


def test_the_summary_is_one_event_whose_level_is_its_urgency_and_the_error_another() -> None:
    latency = Latency.of(100, 0.02, [n / 1_000 for n in range(101)])
    halted = a_summary(
        status="halted",
        exit_code=5,
        cause=HandleFailed("handle failed for sub-message 7", hint="fix it"),
        messages=counts(done=6, pending=4),
        latency=latency,
        failures=FailureStatus(failures=4),
    )
    with Log() as (terminal, log):
        show_summary(terminal, halted)

    error, reported = log.lines
    assert (error["event"], error["exit_code"], error["hint"]) == ("error", 5, "fix it")
    assert (reported["event"], reported["level"], reported["status"]) == (
        "summary",
        "error",
        "halted",
    )
    assert reported["messages"] == halted.messages.as_json()
    assert reported["resume"] == "drainer resume orders.reindexer.plan"
    assert reported["latency"]["percentiles_s"][99] == 0.099
    assert reported["conserved"] is True

    dead = a_summary(sub_messages=counts(done=3, dead=2), exit_code=6)
    with Log() as (terminal, log):
        for found in (a_summary(), dead):
            show_summary(terminal, found)
    assert [line["level"] for line in log.lines] == ["info", "warning"]


def test_quiet_leaves_what_is_wrong() -> None:
    with Log(quiet=True) as (terminal, log), progress_view(terminal) as view:
        terminal.print_line("nothing to see")
        view.update(a_status(elapsed_s=0.0))
        view.update(a_status(elapsed_s=9.0, trouble="no broker answers"))
        view.update(a_status(elapsed_s=10.0))
        view.update(a_status(elapsed_s=10.0, stopping="interrupted by SIGTERM"))
        show_summary(terminal, a_summary())

    assert log.events() == ["trouble", "stopping"]
    assert {line["level"] for line in log.lines} == {"warning"}


def test_what_handlers_print_and_log_are_lines_too() -> None:
    with Log() as (_, log):
        print("two lines\nin one print", file=sys.stderr)
        sys.stderr.write("begun, ")
        print("and ended", file=sys.stderr)
        logging.getLogger("my.handler").warning("doc %s is odd", 7, extra={"doc": 7, "level": "x"})
        logging.getLogger("my.handler").info("by its own level")
        try:
            raise ValueError("bad document")
        except ValueError:
            logging.getLogger("my.handler").exception("it failed")
        sys.stderr.write("without an end")

    lines = log.lines
    assert [line["message"] for line in lines] == [
        "two lines",
        "in one print",
        "begun, and ended",
        "doc 7 is odd",
        "it failed",
        "without an end",
    ]
    odd, failed = lines[3], lines[4]
    assert (odd["event"], odd["logger"], odd["level"]) == ("log", "my.handler", "warning")
    assert odd["doc"] == 7
    assert "ValueError: bad document" in failed["exc_info"]


def test_what_is_only_for_the_eye_elsewhere_comes_line_by_line() -> None:
    with Log() as (terminal, log):
        terminal.items(*account(counts(done=3), counts(done=6)).items)

    assert [line["message"].split()[0] for line in log.lines] == [
        "read",
        "messages",
        "sub-messages",
    ]


def test_a_log_without_a_reader_stops_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with logging_as_json(stderr=Gone()) as terminal:
        terminal.print_line("who is there?")
        print("hello?", file=sys.stderr)


def test_a_child_process_of_a_handler_has_a_standard_error(tmp_path: Path) -> None:
    with (
        (tmp_path / "err").open("w+") as err,
        logging_as_json(stderr=err),
    ):
        subprocess.run(["sh", "-c", "echo ouch >&2"], stderr=sys.stderr, check=True)

    assert (tmp_path / "err").read_text() == "ouch\n"


def test_after_it_logging_is_what_it_was() -> None:
    before = (logging.getLogger().handlers[:], logging.getLogger().level, sys.stderr)
    with Log():
        assert sys.stderr is not before[2]

    assert (logging.getLogger().handlers, logging.getLogger().level, sys.stderr) == before
