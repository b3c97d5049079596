"""``collops plan``: what it prints, its JSON, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.cli.main import main
from collops.launch.rank_table import make_rank_table
from collops.plan.prediction import (
    ASSUMED,
    DESCRIPTORS,
    GATHER,
    REDUCE,
    Call,
    Prediction,
    blocks,
    limits,
    predict,
)

BASE = ["plan", "--op", "all_gatherv", "--bytes", "1m"]
ROW = (
    b'{"bench": "all_gather_v", "column": "plain", "hosts": 2, "ranks": 2, "dtype": "f32", '
    b'"counts": [1, 2], "bytes": 12, "ms": 0.5}'
)


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints."""
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out


def plan_object(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What it writes as JSON."""
    found: dict[str, Any] = json.loads(plan(capsys, *words, "--json", "-"))
    return found


def test_a_rank_table_gives_hosts_and_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["left", "right"], 2))
    words = ["--rank-table", str(table), "--op", "all_gatherv", "--bytes", "4k,0,8k,1k"]
    out = plan(capsys, *words)
    assert "all_gatherv of 13.0 KiB float32, 4 ranks on 2 hosts\n" in out
    assert "costs: ASSUMED, not measured: 25 GB/s and 2 us between hosts" in out
    assert "right to left" in out
    found = plan_object(capsys, *words)
    assert [host["name"] for host in found["hosts"]] == ["left", "right"]
    # 24 bytes of each head beside the blocks.
    assert [host["sent_bytes"] for host in found["hosts"]] == [4096 + 48, 9216 + 48]
    assert found["links"]["worst"] == ["right", "left"]
    assert found["measured"] is False


def test_even_bytes_of_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "3", "--ranks-per-host", "2", "--op", "reduce_scatterv"]
    each = plan_object(capsys, *words, "--bytes", "8k", "--per-rank")
    assert each["bytes"] == 6 * 8192
    assert each == plan_object(capsys, *words, "--bytes", "48k")
    for host in each["hosts"]:
        assert host["sent_bytes"] == 2 * 4 * 8192 + 4 * 24
        assert host["scratch_bytes"] == 6 * 8192
        assert host["most_peers"] == 4


def test_a_skew_changes_who_sends(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "2", "--ranks-per-host", "1", "--op", "all_gatherv", "--bytes", "64k"]
    sent = [
        [host["sent_bytes"] - 24 for host in plan_object(capsys, *words, "--skew", skew)["hosts"]]
        for skew in ("even", "one-owner", "1:3")
    ]
    assert sent == [[32768, 32768], [65536, 0], [16384, 49152]]


def test_an_order_that_is_free_moves_fewer_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "2", "--ranks-per-host", "4", "--op", "reduce_scatterv", "--bytes", "4m"]
    sums, largest = (
        plan_object(capsys, *words, "--dtype", "bf16", "--reduce", op) for op in ("sum", "max")
    )
    assert sum(host["sent_bytes"] for host in largest["hosts"]) == 8 * 524288 + 8 * 24
    assert sum(host["sent_bytes"] for host in sums["hosts"]) == 20 * 524288 + 8 * 24


def test_several_numbers_of_hosts_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "2,16,125", "--op", "all_gatherv", "--bytes", "1k", "--per-rank"]
    out = plan(capsys, *words)
    lines = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")]
    assert {"16", "128", "1,000"} <= set(lines)
    assert "No limit is exceeded." in out


def test_a_group_that_is_refused_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--hosts", "2", "--ranks-per-host", "129", "--op", "all_gatherv", "--bytes", "1k"]
    out = plan(capsys, *words)
    assert "Limits exceeded: ranks of a host" in out
    assert "This version refuses such a group." in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--hosts", "0"], "a whole number of 1 or more is needed, got '0'"),
        (["--hosts", "2", "--bytes", "1x"], "got '1x'"),
        (["--hosts", "2", "--op", "allgatherv"], "'allgatherv': did you mean all_gatherv?"),
        (["--hosts", "2", "--op", "x"], "must be one of all_gatherv, reduce_scatterv"),
        (["--hosts", "2", "--dtype", "flot32"], "did you mean 'float32'?"),
        (["--hosts", "2", "--dtype", "bool"], "'bool': pass a type of whole or real numbers"),
        (["--hosts", "2", "--bytes", "1k,2k"], "--bytes has 2 numbers, there are 16 ranks"),
        (["--hosts", "2", "--bytes", "1k,2k", "--skew", "3:5"], "takes no --per-rank and no"),
        (["--hosts", "2,3", "--json", "-"], "and no --json"),
        (["--rank-table", "/not/there"], "/not/there"),
        (["--hosts", "2", "--links", "/not/there"], "/not/there"),
        ([], "one of the arguments --rank-table --hosts is required"),
    ],
)
def test_wrong_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    try:
        status: object = main([*BASE, *words])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert status == 2
    assert problem in error
    assert error.startswith("collops plan: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", ": no row of all_gather_v"),
        (b"\xff\n", ": is not UTF-8 text (invalid start byte)"),
        (b"{", ", line 1: not JSON: "),
        (b"[1]", ", line 1: no row of collops bench --json"),
        (ROW.replace(b'"hosts": 2, ', b""), ": a row of all_gather_v lacks a field "),
        (ROW.replace(b'"hosts": 2', b'"hosts": 0'), " or has a wrong one: ZeroDivisionError"),
        (ROW.replace(b"[1, 2]", b'["a", 2]'), " or has a wrong one: ValueError("),
        (ROW.replace(b"0.5", b"-1"), "has a wrong one: ValueError('counts of 2 ranks, bytes or ms"),
    ],
)
def test_a_file_of_no_links_is_refused(
    content: bytes, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    assert main([*BASE, "--hosts", "2", "--links", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"collops plan: {path}{problem}" if problem[0] in ":," else "collops ")
    assert problem in said
    assert said.count("\n") == 1


def found_of(**figures: float) -> Prediction:
    """A prediction of one host of which only these figures are not 0."""
    names = predict(Call(GATHER, (0,), (1,)), ASSUMED).hosts[0]
    return Prediction(10.0, [{**dict.fromkeys(names, 0), "time_us": 10.0, **figures}], np.zeros(1))


def test_the_parts_of_a_time() -> None:
    costs = replace(ASSUMED, latency_us=100.0, meeting_us=10.0, message_us=0.5)
    [left, _] = predict(Call(GATHER, blocks(2, 2), (1 << 20,) * 4), costs).hosts
    moved = max(left["network_us"], left["messages_us"])
    assert left["network_us"] == left["sent_bytes"] / costs.network_rate
    assert left["meetings_us"] == 10.0 * (1 + 1 + 2)
    assert left["time_us"] == pytest.approx(
        2 * 100.0 + moved + left["copies_us"] + left["meetings_us"]
    )


def test_what_takes_half_of_the_time_bounds_it() -> None:
    assert found_of(network_us=6.0, copies_us=3.0).bound(0) == "network"
    assert found_of(messages_us=5.0).bound(0) == "CPU for messages"
    assert found_of(copies_us=4.0).bound(0) == "latency"


def test_limits_are_in_the_order_of_the_part_that_is_needed() -> None:
    call = Call(REDUCE, blocks(50, 4), (10,) * 200)
    every = limits(call, predict(call, ASSUMED))
    parts = [limit.part for limit in every]
    assert parts == sorted(parts, reverse=True)
    by_name = {limit.name: limit for limit in every}
    assert by_name["descriptors of a rank"].need == DESCRIPTORS + 196
    assert by_name["rank in a message's tag"].reached_at(200) == 16384
    assert by_name["ranks of a host"].reached_at(200) is None
