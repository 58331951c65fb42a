"""The file of a report: what it may replace, what is refused, and that it is written whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from drainer.errors import EXIT_REFUSED
from drainer.view.report.file import (
    MARK,
    ReportFile,
    ReportNotWritten,
    ReportRefused,
    write_or_warn,
)
from privileges import without_privileges

from . import samples

PAGE = f"<!doctype html>{MARK.decode()}"


def test_a_page_is_written_for_its_owner_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    ReportFile(path).write(PAGE)
    assert path.read_text() == PAGE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_earlier_report_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(PAGE + "old")
    ReportFile(path).write(PAGE + "new")
    assert path.read_text() == PAGE + "new"


def test_an_empty_file_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.touch()
    ReportFile(path).write(PAGE)
    assert path.read_text() == PAGE


def test_any_other_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "handlers.py"
    path.write_text("class Reindex: ...")
    with pytest.raises(ReportRefused, match="is no report of drainer's") as caught:
        ReportFile(path)
    assert caught.value.exit_code == EXIT_REFUSED
    assert caught.value.hint
    assert path.read_text() == "class Reindex: ..."


def test_a_file_that_appeared_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "orders.plan.json"
    file = ReportFile(path)
    path.write_text("{}")  # the plan, say
    with pytest.raises(ReportNotWritten, match="is no report of drainer's"):
        file.write(PAGE)
    assert path.read_text() == "{}"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportRefused, match="there is no folder"):
        ReportFile(tmp_path / "missing" / "report.html")


def test_a_folder_that_can_not_be_searched_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    with without_privileges(), pytest.raises(ReportRefused, match="permission denied"):
        ReportFile(tmp_path / "below" / "report.html")


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportRefused, match="is no file"):
        ReportFile(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReportRefused, match="is no file"):
        ReportFile(tmp_path / "pipe")


def test_a_name_that_no_disk_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportRefused, match="File name too long"):
        ReportFile(tmp_path / ("x" * 300))


def test_a_folder_that_can_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # tests may be root's
    with pytest.raises(ReportRefused, match="permission denied"):
        ReportFile(tmp_path / "report.html")


def test_a_full_disk_leaves_the_earlier_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text(PAGE + "old")
    file = ReportFile(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ReportNotWritten, match="No space left on device"):
        file.write(PAGE + "new")
    assert path.read_text() == PAGE + "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_half_a_character_of_a_key_is_no_reason_to_fail(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    ReportFile(path).write(PAGE + "\ud800")
    assert path.read_text() == PAGE + "\\ud800"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (KeyboardInterrupt(), "warning: the report was not written: interrupted"),
        (ZeroDivisionError("no axis"), "warning: the report was not written: ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_with_a_page_is_told_and_no_more(
    tmp_path: Path, raised: BaseException, told: str
) -> None:
    terminal, _, err = samples.terminal(quiet=True)

    def page() -> str:
        raise raised

    write_or_warn(terminal, ReportFile(tmp_path / "r.html"), page)
    assert err.getvalue().startswith(told)
    assert not list(tmp_path.iterdir())
