"""README's figures of padding are those of the kept run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collops.bench.operators.padding import ratios

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "bench" / "kept" / "xeon_padding.jsonl"


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_page_has_the_table_of_the_kept_run(page: str) -> None:
    """The first table of `collops bench padding`, and the least of gloo's ratios."""
    rows = [json.loads(line) for line in KEPT.read_text().splitlines()]
    own, _ = ratios(rows).split("\n\n")
    text = (ROOT / page).read_text()
    shown = text.split("<!-- padding begins -->\n")[1].split("<!-- padding ends -->")[0]
    assert shown.strip() == own
    after = text.split("<!-- padding ends -->")[1].split("\n\n")[1]
    for what in ("calls", "layer"):
        least = min(row["gloo_ratio"] for row in rows if row["what"] == what)
        assert f"{least:.1f} " in after
