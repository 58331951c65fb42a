from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest

from drainer.demo.recording import RecordingTerminal
from drainer.view.live import LiveView, progress_view
from drainer.view.summary import show_summary

from . import samples


def recording(stderr: io.StringIO, **settings: bool) -> RecordingTerminal:
    streams = {"stdin": io.StringIO(), "stdout": io.StringIO(), "stderr": stderr}
    return RecordingTerminal(**settings, **streams)


def picture(terminal: RecordingTerminal, folder: Path) -> str:
    terminal.save_svg(folder / "drain.svg", "drainer")
    words = ElementTree.parse(folder / "drain.svg").getroot().itertext()
    return "".join(words).replace("\xa0", " ")


@pytest.mark.parametrize("stderr", [samples.Screen(), io.StringIO()])
def test_a_recording_has_the_last_frame_data_and_the_end(
    stderr: io.StringIO, tmp_path: Path
) -> None:
    terminal = recording(stderr)
    with progress_view(terminal) as view:
        assert isinstance(view, LiveView)
        view.update(samples.status(elapsed_s=1.0))
        view.update(samples.status(elapsed_s=77.0))
    show_summary(terminal, samples.summary())
    terminal.data({"a": "[b]"})
    text = picture(terminal, tmp_path)
    assert text.count("so far") == 1
    assert "1m 17s so far" in text
    assert "✓ adds up" in text
    assert "✓ adds up" in stderr.getvalue()  # whoever runs it sees it too
    assert '"a": "[b]"' in text
    assert picture(terminal, tmp_path) == text


def test_quiet_is_quiet_in_the_recording_too(tmp_path: Path) -> None:
    terminal = recording(io.StringIO(), quiet=True)
    terminal.say("hello")
    terminal.warn("careful")
    text = picture(terminal, tmp_path)
    assert "warning: careful" in text
    assert "hello" not in text
