"""The pages' figures of padding are those of the kept runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collops.bench.operators.padding import ratios

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "bench" / "kept"


def kept(name: str) -> list[dict[str, Any]]:
    """The rows of a kept run."""
    return [json.loads(line) for line in (KEPT / name).read_text().splitlines()]


def shown(page: str) -> str:
    """The table of a page."""
    text = (ROOT / page).read_text()
    return text.split("<!-- padding begins -->\n")[1].split("<!-- padding ends -->")[0].strip()


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_page_has_the_table_of_the_kept_run(page: str) -> None:
    """The first table of `collops bench padding`, and the least of gloo's ratios."""
    rows = kept("xeon_padding.jsonl")
    own, _ = ratios(rows).split("\n\n")
    assert shown(page) == own
    after = (ROOT / page).read_text().split("<!-- padding ends -->")[1].split("\n\n")[1]
    for what in ("calls", "layer"):
        least = min(row["gloo_ratio"] for row in rows if row["what"] == what)
        assert f"{least:.1f} " in after


def test_the_page_of_the_benchmark_has_the_table_of_4_ranks() -> None:
    assert shown("docs/bench.md") == ratios(kept("zen4_padding.jsonl")).split("\n\n")[2]
