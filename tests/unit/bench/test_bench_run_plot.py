"""bench/plot.py and bench/summary.py: what docs/performance.md shows of the kept runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plot
import ratios
import summary

ROOT = Path(__file__).resolve().parents[3]
STORED = Path(__file__).with_name("stored_run.json")


def stored() -> dict[str, Any]:
    """The stored run."""
    run: dict[str, Any] = json.loads(STORED.read_text())
    return run


def test_lines_are_ratios_of_points_with_enough_rounds() -> None:
    table = ratios.cells(ratios.points_of(stored()))["all_gather_v", "f32", "3:5"]
    lines = plot.lines_of(table)
    # The far point has one round, and the point of sibling cores no MPI.
    assert set(lines) == {("near", "plain"), ("near", "window")}
    assert lines["near", "plain"] == ([1024], [pytest.approx(2.0 / 4.5)])
    assert lines["near", "window"] == ([1024], [pytest.approx(3.0 / 4.5)])


def test_the_picture_has_a_panel_for_each_call_and_the_line_of_the_mpi(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = plot.figure_of(ratios.points_of(stored()))
    shown = [panel for panel in figure.axes if panel.lines]
    assert [panel.get_title() for panel in shown] == ["all_gather_v f32, 3:5"]
    assert any(list(line.get_ydata()) == [1.0, 1.0] for line in shown[0].lines)
    assert plot.main(str(tmp_path / "run.png"), str(STORED)) == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_an_outlier_is_marked_and_does_not_flatten_the_panels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib")
    sizes = [2**power for power in range(10, 20)]
    lines = {("near", "plain"): (sizes, [0.5, 0.6] * 4 + [0.7, 1000.0])}
    monkeypatch.setattr(plot, "lines_of", lambda table: lines)
    [panel] = plot.figure_of(ratios.points_of(stored())).axes[:1]
    assert panel.get_ylim() == (0, pytest.approx(1.1))
    assert [text.get_text().strip() for text in panel.texts] == ["1e+03"]
    [mark] = [line for line in panel.lines if line.get_marker() == "^"]
    assert list(mark.get_xdata()) == [sizes[-1]]


def test_a_run_without_mpis_has_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    run = stored()
    run["launches"] = [one for one in run["launches"] if one["peer"] == ratios.COLLOPS]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    assert plot.main(str(tmp_path / "run.png"), str(path)) == 1
    assert "no call has a point of collops and one of an MPI" in capsys.readouterr().err
    assert not (tmp_path / "run.png").exists()


def test_the_page_has_the_tables_of_the_kept_runs() -> None:
    """python bench/summary.py bench/kept/*.json writes what stands between the two marks."""
    page = (ROOT / "docs" / "performance.md").read_text()
    shown = page.split("<!-- bench/summary.py begins -->\n")[1]
    shown = shown.split("<!-- bench/summary.py ends -->")[0]
    runs = sorted((ROOT / "bench" / "kept").glob("*.json"))
    assert shown == summary.tables(summary.points_of(runs))


def test_a_table_has_one_line_for_each_size_and_names_the_rounds() -> None:
    tables = summary.tables(ratios.points_of(stored()))
    lines = [line for line in tables.splitlines() if line.startswith("| all_gather_v f32")]
    assert lines[0] == "| all_gather_v f32 | 1 KiB | 4.50 | 0.44 | 0.67 | 5.00 | 1.20 | - | 2, 1 |"
