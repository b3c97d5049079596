"""The tables and pictures of interleaved runs, from stored files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collops.bench import programs, runs
from collops.bench.plot import panels_figure

ROOT = Path(__file__).resolve().parents[3]
STORED = Path(__file__).with_name("stored_run.json")
HEAD = (
    "| bytes | flag | MPI us | fastest way | plain us | window us | plain / MPI | window / MPI "
    "| MPI ways | rounds |\n"
    "| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)
TABLES = f"""### all_gather_v f32, 2 ranks 3:5

{HEAD}| 1 KiB | near | 4.50 | Open MPI tuned, native | 2.00 | 3.00 | 0.44 | 0.67 | 2 of 2 | 2 |
| 1 KiB | far | 5.00 | MPICH heap, native | 6.00 | - | 1.20 | - | 1 of 2 | 1 |
| 1 MiB | sibling | - | - | - | 0.50 | - | - | 0 of 0 | 1 |

### reduce_scatter_v bf16, 2 ranks 3:5

{HEAD}| 4 MiB | near | 200 | Open MPI tuned, exchange_add | 300 | - | 1.50 | - | 1 of 1 | 1 |

1 of 19 points left out: the cores moved while they ran.
WRONG: MPICH heap native reduce_scatter_v bf16 4 MiB 3:5
not run: Open MPI tuned native reduce_scatter_v bf16: no such type
FAILED: round 2, MPICH heap, send_recv:f32 3:5: 139
"""


def stored() -> dict[str, Any]:
    run: dict[str, Any] = json.loads(STORED.read_text())
    return run


def test_the_tables_of_a_stored_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([str(STORED)]) == 1
    assert capsys.readouterr().out == TABLES


def test_another_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    for text in ("{}", "no json"):
        other.write_text(text)
        assert programs.main([str(other)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"collops bench cpp: {other}: not the file of a run: ")


def test_two_builds_are_compared_beside_how_far_the_old_one_is_from_itself() -> None:
    times = {"collops before": 2.0, "collops": 3.0, "collops before, again": 2.2}
    point = {"operator": "all_reduce", "dtype": "f32", "shares": "3:5", "bytes": 1024}
    more = {"way": "plain", "flag_us": [0.1, 0.1], "wrong_ranks": 0}
    points = [{**point, **more, "us": [1, us, 9]} for us in times.values()]
    launches = [
        runs.launch_record(1, peer, [point]) for peer, point in zip(times, points, strict=True)
    ]
    report = runs.report({"launches": launches, "failed": []})
    assert report.splitlines()[-1] == (
        "| all_reduce f32 | 1 KiB | near | plain | 2.10 | 3.00 | 1.429 | 10.0% | 10.0% | 1 |"
    )


def test_a_run_is_good_only_without_failures_and_wrong_results() -> None:
    run = stored()
    assert not runs.is_good({**run, "failed": []})
    right = [
        {**one, "points": [point for point in one["points"] if not point.get("wrong_ranks")]}
        for one in run["launches"]
    ]
    assert not runs.is_good({**run, "launches": right})
    assert runs.is_good({**run, "launches": right, "failed": []})


@pytest.mark.parametrize(
    ("flags_us", "where"),
    [
        ([0.03, 0.04], "sibling"),
        ([0.05, 0.149], "near"),
        ([0.15, 0.4], "far"),
        ([0.149, 0.151], "moved"),
        ([0.03, 0.06], "moved"),
        ([0.0, 0.0], "one core"),
    ],
)
def test_where_the_cores_lay(flags_us: list[float], where: str) -> None:
    assert runs.place(flags_us) == where


def test_lines_are_ratios_of_points_with_enough_rounds() -> None:
    table = runs.cells(runs.points_of(stored()))["all_gather_v", "f32", "3:5"]
    lines = runs.lines_of(table)
    # The far point has one round, and the point of sibling cores no MPI.
    assert set(lines) == {("near", "plain"), ("near", "window")}
    assert lines["near", "plain"] == ([1024], [pytest.approx(2.0 / 4.5)])
    assert lines["near", "window"] == ([1024], [pytest.approx(3.0 / 4.5)])


def test_the_picture_has_a_panel_for_each_call_and_the_line_of_the_mpi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    assert programs.main([str(STORED), "--plot", str(tmp_path / "run.png")]) == 1
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    sizes = [2**power for power in range(10, 20)]
    lines = {("near", "plain"): (sizes, [0.5, 0.6] * 4 + [0.7, 1000.0])}
    monkeypatch.setattr(runs, "lines_of", lambda table: lines)
    [panel, *_] = panels_figure(runs.panels(runs.points_of(stored()))).axes
    assert panel.get_title() == "all_gather_v f32, 3:5"
    assert any(list(line.get_ydata()) == [1.0, 1.0] for line in panel.lines)
    # An outlier is marked and does not flatten the panel.
    assert panel.get_ylim() == (0, pytest.approx(1.1))
    assert [text.get_text().strip() for text in panel.texts] == ["1e+03"]
    [mark] = [line for line in panel.lines if line.get_marker() == "^"]
    assert list(mark.get_xdata()) == [sizes[-1]]


def test_a_run_without_mpis_has_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    run = stored()
    run["launches"] = [one for one in run["launches"] if one["peer"] == runs.COLLOPS]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    assert programs.main([str(path), "--plot", str(tmp_path / "run.png")]) == 2
    assert "no call has a point of collops and one of an MPI" in capsys.readouterr().err
    assert not (tmp_path / "run.png").exists()


@pytest.mark.parametrize("machine", ["zen3", "xeon"])
def test_the_page_has_the_tables_of_the_kept_runs(machine: str) -> None:
    """collops bench cpp --summary of a machine's files writes what stands between its marks."""
    page = (ROOT / "docs" / "performance.md").read_text()
    shown = page.split(f"<!-- {machine} begins -->\n")[1].split(f"<!-- {machine} ends -->")[0]
    kept = runs.read_runs(sorted((ROOT / "bench" / "kept").glob(f"{machine}_*.json")))
    assert shown == runs.summary([point for run in kept for point in runs.points_of(run)])


def test_a_table_has_one_line_for_each_size_and_names_the_rounds() -> None:
    tables = runs.summary(runs.points_of(stored()))
    lines = [line for line in tables.splitlines() if line.startswith("| all_gather_v f32")]
    assert lines[0] == "| all_gather_v f32 | 1 KiB | 4.50 | 0.44 | 0.67 | 5.00 | 1.20 | - | 2, 1 |"
