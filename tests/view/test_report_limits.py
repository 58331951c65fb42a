"""The report of limits as a page and as a picture."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import orjson
import pytest

from drainer.limits.report.boundary import boundary_chart, boundary_png, search_charts
from drainer.limits.report.limits import limits_page
from drainer.limits.search.boundary import Limits
from drainer.limits.search.point import End
from drainer.limits.search.settings import Axis
from drainer.view.report.file import MARK
from operations.modelled import SETTINGS, ModelledCluster, nothing_known, run

from .samples import ENDED, EVIL
from .test_report import SVG, Reader


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Limits:
    return run(ModelledCluster(), tmp_path_factory.mktemp("limits") / "limits.json")


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Limits:
    """With clients that could do no more, and a most that was safe."""
    cluster = ModelledCluster(clients_send=9_000.0)
    path = tmp_path_factory.mktemp("limits") / "limits.json"
    return run(cluster, path, replace(SETTINGS, producers_most=60))


def shown(limits: Limits) -> str:
    return Reader(limits_page(limits, ENDED)).text


def test_the_page_begins_with_the_boundaries(limits: Limits) -> None:
    text = shown(limits)

    best = max(limits.boundaries, key=limits.mb_per_s_a_broker)
    assert f"Up to {best.bytes_per_s / 1e6:,.1f} MB/s a broker, at 10 KiB" in text
    for boundary in limits.boundaries:
        assert f"{boundary.messages_per_s:,.0f}/s messages" in text
    assert "round trip 80 ms, over 22 ms (2 ms without load)" in text
    assert "5 groups reading, 10 partitions, uncompressed" in text


def test_the_page_has_the_findings_for_programs_and_needs_nothing_else(limits: Limits) -> None:
    page = limits_page(limits, ENDED)
    reader = Reader(page)

    assert MARK.decode() in page[:1024]
    assert Limits.from_json(orjson.loads(reader.data)["limits"]) == limits
    assert set(reader.links) <= {"data:,"}
    assert "default-src 'none'" in page


def test_what_is_not_known_for_certain_is_said_at_the_top(bounded: Limits) -> None:
    text = shown(bounded)

    ends = {boundary.end for boundary in bounded.boundaries}
    assert ends == {End.CLIENTS, End.MOST}
    assert "At least" in text
    assert "lower bound: clients could do no more" in text
    assert "even 15.0 MB/s, the most that was allowed" in text


def test_shapes_tell_verdicts_apart_not_colours_alone(limits: Limits, bounded: Limits) -> None:
    labels = {key.label for one in (limits, bounded) for key in boundary_chart(one).keys}

    assert {"● safe", "✖ overloaded", "▲ clients were the limit", "safe cap, 80% of it"} <= labels
    assert any("an arrow: it lies above" in label for label in labels)


def test_each_trial_is_drawn_once_in_the_picture_and_in_its_search(limits: Limits) -> None:
    def marks(svg: str) -> int:
        root = ET.fromstring(svg)
        return sum(
            1 for each in root.iter(f"{SVG}use") if "stroke-width: 0.6" in _styles(root, each)
        )

    searches = search_charts(limits)
    assert [chart.title for chart in searches] == [
        f"The search at {size}" for size in ("100 B", "1 KiB", "10 KiB")
    ]
    assert marks(boundary_chart(limits).svg) == len(limits.trials)
    for chart, value in zip(searches, SETTINGS.values, strict=True):
        assert marks(chart.svg) == len(limits.trials_of(value))


def _styles(root: ET.Element, mark: ET.Element) -> str:
    parents = {child: parent for parent in root.iter() for child in parent}
    told, each = mark.get("style", ""), mark
    while each in parents:
        each = parents[each]
        told += each.get("style", "")
    return told


def test_the_png_is_a_picture(limits: Limits, bounded: Limits) -> None:
    first, *rest = limits.boundaries
    none = replace(first, messages_per_s=0.0, low=0.0, point=replace(first.point, producers=0))
    unsafe = replace(limits, boundaries=(none, *rest))
    for one in (limits, bounded, unsafe, nothing_known()):
        pixels = matplotlib.image.imread(io.BytesIO(boundary_png(one)), format="png")
        assert pixels.shape[:2] == (840, 1200)
        assert pixels[..., :3].min() < 0.5  # something is drawn on it


@pytest.mark.parametrize(
    ("axis", "values", "words"),
    [
        (Axis.CONSUMER_GROUPS, (0, 5), ["0 groups", "5 groups"]),
        (Axis.PARTITIONS, (40, 10), ["40 partitions", "10 partitions"]),
        (Axis.COMPRESSION, ("none", "zstd"), ["uncompressed", "zstd"]),
    ],
)
def test_other_axes_are_drawn_too(
    tmp_path: Path, axis: Axis, values: tuple[int | str, ...], words: list[str]
) -> None:
    settings = replace(SETTINGS, axis=axis, values=values)
    limits = run(ModelledCluster(bears=lambda _: 20_000.0), tmp_path / "limits.json", settings)

    chart = boundary_chart(limits)

    told = [each.text for each in ET.fromstring(chart.svg).iter(f"{SVG}text")]
    assert set(words) <= set(told)
    assert all(re.search(rf"\b{word}\b", limits_page(limits, ENDED)) for word in words)


def test_what_comes_from_the_cluster_is_never_markup(limits: Limits) -> None:
    page = limits_page(replace(limits, cluster_id=EVIL), ENDED)

    assert "script" not in Reader(page).tags
    assert EVIL not in page
