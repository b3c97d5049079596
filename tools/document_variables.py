"""Writes docs/environment.md from the core's table of variables; a test compares the two."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "environment.md"

HEAD = """# Environment variables

Variables are read when a communicator or an operation is created; invalid values raise an error.
`collops doctor` shows those that are set, and what is wrong with a name or a value
([commands.md](commands.md)). This page is written by `python tools/document_variables.py` from
`ops/collops/core/env.cpp`. `collops tune` measures values of `COLLOPS_TUNING` on this machine
([bench.md](bench.md)).

Other programs' variables place the ranks: the launcher's ([first_contact.md](first_contact.md)),
`RANK_TABLE_FILE`, `RANK_ID`, `RANK_SIZE` and `DEVICE_ID` ([rank_tables.md](rank_tables.md)), and
`MASTER_ADDR`, the address at which ranks of several hosts connect ([multihost.md](multihost.md)).

| variable | when it is not set | meaning |
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
