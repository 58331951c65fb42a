from __future__ import annotations

import io
from pathlib import Path

import pytest

from drainer.demo.recording import RecordingTerminal
from drainer.view.live import LiveView, progress_view
from drainer.view.summary import show_summary

from . import samples


def recording(stderr: io.StringIO) -> RecordingTerminal:
    return RecordingTerminal(stdin=io.StringIO(), stdout=io.StringIO(), stderr=stderr)


@pytest.mark.parametrize("stderr", [samples.Screen(), io.StringIO()])
def test_a_recording_has_the_command_the_last_frame_and_the_end(
    stderr: io.StringIO, tmp_path: Path
) -> None:
    terminal = recording(stderr)
    terminal.type("drainer run orders [x]")
    with progress_view(terminal) as view:
        assert isinstance(view, LiveView)
        view.update(samples.status(elapsed_s=1.0))
        view.update(samples.status(elapsed_s=77.0))
    show_summary(terminal, samples.summary())
    text = terminal.text()
    assert text.startswith("$ drainer run orders [x]\nDraining orders")
    assert text.count("so far") == 1
    assert "1m 17s so far" in text
    assert "✓ adds up" in text
    assert "✓ adds up" in stderr.getvalue()  # whoever runs it sees it too
    terminal.save_svg(tmp_path / "drain.svg", "drainer")
    terminal.save_svg(tmp_path / "again.svg", "drainer")
    svg = (tmp_path / "drain.svg").read_text()
    assert svg.startswith("<svg")
    assert "orders" in (tmp_path / "again.svg").read_text()


def test_data_is_recorded_among_the_words() -> None:
    terminal = recording(io.StringIO())
    terminal.data({"a": "[b]"})
    assert '"a": "[b]"' in terminal.text()


def test_quiet_is_quiet_in_the_recording_too() -> None:
    terminal = RecordingTerminal(quiet=True, stdout=io.StringIO(), stderr=io.StringIO())
    terminal.say("hello")
    terminal.warn("careful")
    assert terminal.text() == "warning: careful\n"
