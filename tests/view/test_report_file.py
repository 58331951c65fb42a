"""The file of a report: what it may replace, what is refused, and that it is written whole."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path

import pytest

from drainer.errors import EXIT_REFUSED, Refused
from drainer.view.page import Page
from drainer.view.report.file import MARK, ReportFile, write_page
from privileges import without_privileges

from . import samples

PAGE = f"<!doctype html>{MARK.decode()}"


@pytest.mark.parametrize("before", [None, "", PAGE + "old"])
def test_a_page_is_written_whole_for_its_owner_over_an_earlier_one(
    tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "report.html"
    if before is not None:
        path.write_text(before)
    ReportFile(path).write(PAGE + "\ud800")  # half a character of a key is no reason to fail
    assert path.read_text() == PAGE + "\\ud800"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_any_other_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "handlers.py"
    early = ReportFile(path)
    path.write_text("class Reindex: ...")
    with pytest.raises(Refused, match="is not a report of drainer") as caught:
        ReportFile(path)
    assert caught.value.exit_code == EXIT_REFUSED
    assert caught.value.hint
    with pytest.raises(Refused, match="is not a report of drainer"):
        early.write(PAGE)  # it appeared meanwhile
    assert path.read_text() == "class Reindex: ..."


def test_what_is_no_place_for_a_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "missing" / "report.html", "there is no folder"),
        (tmp_path, "is not a file"),
        (tmp_path / "pipe", "is not a file"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(Refused, match=words):
            ReportFile(path)
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # tests may be root's
    with pytest.raises(Refused, match="Permission denied"):
        ReportFile(tmp_path / "report.html")


def test_a_folder_that_can_not_be_searched_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    with without_privileges(), pytest.raises(Refused, match="Permission denied"):
        ReportFile(tmp_path / "below" / "report.html")


@pytest.mark.parametrize(
    ("raised", "reported"),
    [
        (KeyboardInterrupt(), "warning: the report was not written: KeyboardInterrupt"),
        (ZeroDivisionError("no axis"), "warning: the report was not written: ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_with_a_page_is_a_warning_and_no_more(
    tmp_path: Path, raised: BaseException, reported: str
) -> None:
    terminal, _, err = samples.terminal(quiet=True)

    def page(now: datetime) -> Page:
        raise raised

    write_page(terminal, ReportFile(tmp_path / "r.html"), page)
    assert err.getvalue().startswith(reported)
    assert not list(tmp_path.iterdir())
