"""bench/ratios.py: the table of an interleaved run, from a stored file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ratios

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


def test_the_tables_of_a_stored_run() -> None:
    words = [sys.executable, ROOT / "bench" / "ratios.py", STORED]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == TABLES, done.stderr
    assert done.returncode == 1


def test_a_run_is_good_only_without_failures_and_wrong_results() -> None:
    run = json.loads(STORED.read_text())
    assert not ratios.is_good(run)
    assert not ratios.is_good({**run, "failed": []})
    right = [
        {**one, "points": [point for point in one["points"] if not point.get("wrong_ranks")]}
        for one in run["launches"]
    ]
    assert not ratios.is_good({**run, "launches": right})
    assert ratios.is_good({**run, "launches": right, "failed": []})


def test_a_launch_keeps_what_its_points_share_once() -> None:
    both = {"operator": "broadcast", "dtype": "f32", "shares": "3:5"}
    points = [{**both, "way": "a", "unsupported": "x"}, {**both, "way": "b", "cores": [0, 1]}]
    launch = ratios.launch_record(2, "one", points)
    assert launch["points"] == [{"way": "a", "unsupported": "x"}, {"way": "b", "cores": [0, 1]}]
    everywhere = {"round": 2, "peer": "one"}
    assert ratios.points_of({"launches": [launch]}) == [{**everywhere, **x} for x in points]
    assert ratios.launch_record(2, "one", [])["points"] == []


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
    assert ratios.place(flags_us) == where
