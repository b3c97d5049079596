"""Writes docs/environment.md from the core's table of variables; a test compares the two."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "environment.md"

HEAD = """# Environment variables

collops reads its variables when it creates a communicator or an operation; invalid values raise an
error. `collops doctor` shows the variables that are set, and reports unknown names and invalid
values ([commands.md](commands.md)). `collops tune` measures values of `COLLOPS_TUNING` on this
machine ([bench.md](bench.md)). `python tools/document_variables.py` writes this page from
`ops/collops/core/env.cpp`.

These variables belong to other programs, and determine the ranks: the launcher's variables
([first_contact.md](first_contact.md)), `RANK_TABLE_FILE`, `RANK_ID`, `RANK_SIZE` and `DEVICE_ID`
([rank_tables.md](rank_tables.md)), and `MASTER_ADDR`, the address at which ranks of several hosts
connect ([multihost.md](multihost.md)). `collops run` and `run_ranks` set `OMP_NUM_THREADS`, which
torch reads, where you have not: to the cores of this process / ranks of this host
([run.md](run.md)).

| variable | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    from collops.core import core

    rows = [
        f"| `{name}` | {fallback} | {text} |" for name, fallback, text in core().env_variables()
    ]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
