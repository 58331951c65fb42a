"""A measurement on a modelled cluster: what is found, kept, and never exceeded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drainer.errors import Interrupted, LimitsNotWritten
from drainer.limits.file import LimitsFile
from drainer.limits.search.trial import End, Point
from drainer.limits.trials import baseline_point

from .modelled import SETTINGS, ModelledCluster, forty_mb, nothing_known, run, searched


def bears(message_bytes: int) -> float:
    return forty_mb(Point(message_bytes, 1, 1.0))


def test_each_size_has_the_boundary_that_the_brokers_have() -> None:
    cluster, limits, _ = searched()

    assert not limits.missing
    for boundary in limits.boundaries:
        truth = bears(boundary.message_bytes)
        assert boundary.messages_per_s == pytest.approx(truth, rel=0.06)
        assert boundary.end is End.NARROW
        assert boundary.trials <= SETTINGS.trials
    # Each size is first tried without load, and the brokers rest after each trial.
    unloaded = [point for point, _ in cluster.tried if point.producers == 1]
    assert unloaded[0].message_bytes == 100
    assert {point.message_bytes for point in unloaded} >= {100, 1024, 10_240}
    assert set(limits.baseline) == {100, 1024, 10_240}
    assert cluster.rested == len(limits.trials)
    assert all(took == 25.0 for _, took in cluster.tried)
    assert all(point.bytes_per_s <= 100e6 * (1 + 1e-9) for point, _ in cluster.tried)


def test_brokers_that_do_not_answer_without_load_are_not_measured(tmp_path: Path) -> None:
    cluster = ModelledCluster()
    silent = cluster._signals  # noqa: SLF001
    cluster._signals = lambda point, window_s: replace(  # type: ignore[method-assign]  # noqa: SLF001
        silent(point, window_s), round_trip_ms=None
    )

    with pytest.raises(Interrupted, match="no broker answered"):
        run(cluster, tmp_path / "limits.json")


def test_a_trial_that_can_not_be_kept_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = LimitsFile.write
    written: list[int] = []

    def full(file: LimitsFile, limits: object) -> None:
        written.append(1)
        if len(written) == 4:
            raise LimitsNotWritten("disk full")
        kept(file, limits)  # type: ignore[arg-type]

    monkeypatch.setattr(LimitsFile, "write", full)
    with pytest.raises(LimitsNotWritten):
        run(ModelledCluster(), tmp_path / "limits.json")
    monkeypatch.undo()

    assert len(LimitsFile(tmp_path / "limits.json").load().trials) == 2


def test_the_status_has_what_runs_and_how_long_it_takes() -> None:
    cluster, _, statuses = searched()

    phases = {"warming up", "steady", "baseline, warming up", "baseline, steady", "cooling down"}
    assert {status.phase for status in statuses if status.point is not None} == phases
    elapsed = [status.elapsed_s for status in statuses]
    assert elapsed == sorted(elapsed)
    half = next(status for status in statuses if status.elapsed_s > cluster.now_s / 2)
    assert half.left_s == pytest.approx(cluster.now_s / 2, rel=0.5)
    assert not statuses[-1].limits.missing
    assert statuses[-1].left_s < 60


@pytest.mark.parametrize("message_bytes", [100, 102_400])
def test_without_load_messages_go_often_enough_to_be_seen_and_too_seldom_to_be_felt(
    message_bytes: int,
) -> None:
    usual = nothing_known(replace(SETTINGS, max_mb_per_s=8.0))
    assert baseline_point(usual, message_bytes).messages_per_s == 5.0

    slow = nothing_known(replace(SETTINGS, max_mb_per_s=0.002))
    assert baseline_point(slow, message_bytes).bytes_per_s <= 0.1 * 2_000 + 1e-6
