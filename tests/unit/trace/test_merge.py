"""Joining rank files: broken ones, ranks of several hosts, and what the summary says of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import collops
from collops.cli import main
from collops.trace.merge import group_calls, merge
from collops.trace.plot import shown_parts
from collops.trace.summary import latest, shares, summary
from tests import programs

BOOT_US = 1e9  # when the first host's clock was 0, in real time
Slice = tuple[str, float, float, dict[str, Any]]


def call(seq: int, begin: float, end: float, **more: Any) -> Slice:
    args = {"comm": "tp", "backend": "ucx", "rank": 0, "ranks": 2, "seq": seq, **more}
    return "AllGatherV", begin, end, args


def contact(begin: float, end: float) -> Slice:
    return "first contact", begin, end, {"comm": "tp"}


def write(folder: Path, rank: int, calls: list[Slice], ahead_us: float, wrong_us: float) -> str:
    """A rank's file, on a host whose clock is ahead and whose real time is wrong by so much."""
    monotonic = 5_000_000_000
    real = monotonic + int((BOOT_US - ahead_us + wrong_us) * 1000)
    clocks = {"rank": rank, "process": 7, "host": f"host{rank}", "boot": f"boot {rank}"}
    clocks |= {"monotonic_ns": monotonic, "realtime_ns": real}
    same = {"pid": rank + 1, "tid": 1}
    lines: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", **same, "args": {"name": f"rank {rank}"}},
        {"name": "collops_clocks", "ph": "M", **same, "args": {"clocks": clocks}},
    ]
    for name, begin, end, args in calls:
        times = {"ts": begin + ahead_us, "dur": end - begin}
        lines.append({"name": name, "cat": "call", "ph": "X", **same, **times, "args": args})
    path = folder / f"t.rank{rank}.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n")
    return str(path)


# Rank 1 enters the first call late, rank 0 the second one; a call ends 3 us after its last entry.
CALLS = (
    [call(1, 100, 603), call(2, 1200, 1203), call(3, 2000, 2103)],
    [call(1, 600, 603), call(2, 700, 1203), call(3, 2100, 2103)],
)


@pytest.mark.parametrize("wrong_us", [0.0, 40_000.0, -40_000.0])
def test_calls_correct_the_real_time_of_hosts(wrong_us: float, tmp_path: Path) -> None:
    files = [write(tmp_path, 0, CALLS[0], 0, 0), write(tmp_path, 1, CALLS[1], 1e6, wrong_us)]
    found = merge(files)
    [_, second] = found.clocks
    assert second.within_us == pytest.approx(3.0)
    assert second.shift_us == pytest.approx(-1e6, abs=3.1)
    calls = group_calls(found.events)
    assert [c.last for c in calls] == [1, 0, 1]
    assert [c.late_us for c in calls] == pytest.approx([500, 500, 100], abs=3.1)
    assert [c.seq for c in latest(found, 2)] in ([1, 2], [2, 1])


def test_without_common_calls_the_real_time_joins_hosts(tmp_path: Path) -> None:
    files = [write(tmp_path, 0, CALLS[0], 0, 0), write(tmp_path, 1, [], 1e6, 250)]
    [_, second] = merge(files).clocks
    assert (second.within_us, second.shift_us) == (None, pytest.approx(-1e6 + 250))


def test_a_failed_call_bounds_no_clock(tmp_path: Path) -> None:
    early = [call(1, 100, 110, error="ERROR_TIMEOUT"), *CALLS[0][1:]]
    files = [write(tmp_path, 0, early, 0, 0), write(tmp_path, 1, CALLS[1], 0, 0)]
    assert merge(files).clocks[1].shift_us == pytest.approx(0, abs=3.1)


def test_the_summary_counts_what_others_waited(tmp_path: Path) -> None:
    files = [write(tmp_path, r, CALLS[r], 0, 0) for r in range(2)]
    found = merge(files)
    first, second = shares(found)
    assert (first.calls, first.times_last, second.times_last) == (3, 1, 2)
    assert second.others_waited_us == pytest.approx(600, abs=10)
    said = summary(found, 1)
    assert "2 ranks on host0, host1: 3 calls of several ranks in 0.002 s" in said
    assert "host1: joined by its calls, within 3.0 us" in said
    assert said.count("AllGatherV") == 1


def test_files_of_two_runs_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    files = [write(tmp_path / name, 0, CALLS[0], 0, 0) for name in ("a", "b")]
    with pytest.raises(collops.ArgumentError, match=r"are both of rank 0: pass files of one run"):
        merge(files)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a collops trace of a rank"),
        ("[\n]\n", "not a collops trace of a rank"),
        ("[\n{}\n]\n", "not a collops trace of a rank"),
        ("[\nno json\n]\n", ":2: not an event of a collops trace"),
    ],
)
def test_what_is_no_trace_is_refused(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.rank0.json"
    path.write_text(text)
    assert main(["trace", "summary", str(path)]) == 2
    assert f"{path}" in (said := capsys.readouterr().err)
    assert why in said


def test_a_file_without_its_end_is_read_up_to_there(tmp_path: Path) -> None:
    path = Path(write(tmp_path, 0, CALLS[0], 0, 0))
    whole = path.read_text()
    path.write_text(whole[: whole.index('"seq": 3')])
    assert [event["args"]["seq"] for event in merge([path]).events] == [1, 2]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("t.rank0.json", "is one of the files to merge, which would be lost: name another file"),
        ("t.rank2.json", "is the trace of a rank, which would be lost: name another file"),
    ],
)
def test_a_merge_does_not_replace_the_trace_of_a_rank(
    output: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write(tmp_path, r, CALLS[r % 2], 0, 0) for r in range(3)]
    before = (tmp_path / output).read_text()
    assert main(["trace", "merge", "-o", str(tmp_path / output), *files[:2]]) == 2
    assert why in capsys.readouterr().err
    assert (tmp_path / output).read_text() == before
    merged = str(tmp_path / "t.merged.json")
    for _ in range(2):  # a merged trace may be replaced
        assert main(["trace", "merge", "-o", merged, *files]) == 0


def test_missing_ranks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [call(1, 100, 603, ranks=3)]
    files = [write(tmp_path, rank, calls, 0, 0) for rank in (0, 2)]
    merged = str(tmp_path / "m.json")
    assert main(["trace", "merge", *files, "-o", merged]) == 0
    said = "rank 1 of 3 is missing: pass the files of all ranks"
    assert said in capsys.readouterr().err.splitlines()
    for given in ([merged], files):
        assert main(["trace", "summary", *given]) == 0
        assert said in capsys.readouterr().out.splitlines()


def test_a_merged_trace_beside_others_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write(tmp_path, r, CALLS[r], 0, 0) for r in range(2)]
    merged = str(tmp_path / "t.merged.json")
    assert main(["trace", "merge", *files, "-o", merged]) == 0
    assert main(["trace", "summary", merged, *files]) == 2
    why = f"{merged}: is a merged trace: pass it alone, or the files of the ranks"
    assert why in capsys.readouterr().err


def test_a_picture_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    files = [write(tmp_path, r, CALLS[r], 0, 0) for r in range(2)]
    out = [str(tmp_path / name) for name in ("m.json", "m.png")]
    assert main(["trace", "merge", *files, "-o", out[0], "--plot", out[1]]) == 0
    assert Path(out[1]).read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr()
    assert "host1: joined by its calls" in shown.err
    assert shown.out == f"plot: {out[1]}\n"
    merged = json.loads(Path(out[0]).read_text())
    first = next(event for event in merged["traceEvents"] if event["ph"] == "X")
    assert first["ts"] == 0
    assert first["args"]["late_us"] == 0


def test_a_range_is_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It counts from the first call: here, 2 s of first contact come before it."""
    contacts = [[contact(-2e6, 90)], [contact(-1e6, 95)]]
    files = [write(tmp_path, r, [*contacts[r], *CALLS[r]], 0, 0) for r in range(2)]
    out = str(tmp_path / "m.json")
    # The calls begin 0, 0.6 and 1.9 ms after the first one, and end at 0.503, 1.103 and 2.003 ms.
    for given, kept in (
        ("--from 0", [1, 2, 3]),
        ("--from 0.000504 --to 0.0018", [2]),
        ("--to 0.00055", [1]),
        ("--from 0.0015", [3]),
    ):
        assert main(["trace", "merge", *files, "-o", out, *given.split()]) == 0
        merged = json.loads(Path(out).read_text())["traceEvents"]
        calls = [e for e in merged if e["ph"] == "X" and e["name"] != "first contact"]
        assert [(e["args"]["seq"], e["pid"]) for e in calls] == [
            (seq, pid) for seq in kept for pid in ((2, 1) if seq == 2 else (1, 2))
        ]
    assert main(["trace", "summary", out]) == 0
    assert "1 calls of several ranks in 0.000 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("--from 1", "collops trace: no call from 1 s to inf s: the last one ends at 0.002003 s"),
        ("--from 2 --to 1", "collops trace: --to must be above --from, got 2 and 1"),
        ("--from x", "argument --from: must be a number of seconds, 0 or more, got 'x'"),
        ("--from -1", "argument --from: must be a number of seconds, 0 or more, got '-1'"),
        ("--to 0", "collops trace: --to must be above --from, got 0 and 0"),
    ],
)
def test_a_range_without_calls_is_refused(given: str, why: str, tmp_path: Path) -> None:
    files = [write(tmp_path, r, CALLS[r], 0, 0) for r in range(2)]
    out = str(tmp_path / "m.json")
    done = programs.run_forked(main, ["trace", "merge", *files, "-o", out, *given.split()])
    assert done.returncode == 2
    assert why in done.stderr
    assert not Path(out).exists()


def test_a_picture_shows_the_calls_and_not_first_contact(tmp_path: Path) -> None:
    """Nor the slices inside it, except where the ranks have come no further."""
    waits = [("wait for first contact", -2e6, 90, {"comm": "tp"})]
    contacts = [[contact(-2e6, 90), *waits], [contact(-1e6, 95)]]
    files = [write(tmp_path, r, [*contacts[r], *CALLS[r]], 0, 0) for r in range(2)]
    parts = list(shown_parts(merge(files), 0, math.inf))
    assert [event["name"] for event in parts] == ["AllGatherV"] * 6
    assert (parts[0]["ts"], parts[0]["dur"]) == (0, 503)
    [cut] = shown_parts(merge(files), 503, 601)
    assert (cut["ts"], cut["dur"]) == (600, 1)
    files = [write(tmp_path, r, contacts[r], 0, 0) for r in range(2)]
    assert len(list(shown_parts(merge(files), 0, math.inf))) == 3
