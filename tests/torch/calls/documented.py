"""The table of docs/torch.md: every public call of torch.distributed, and its state on collops.

``python -m tests.torch.calls.documented`` writes it; a test compares.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "torch.md"
BEGIN = "<!-- written by python -m tests.torch.calls.documented -->\n"
END = "<!-- end -->\n"
MODES = {"sync": "sync", "async": "async", "future": "future"}
# Calls that move nothing, or that other tests cover: their state, and where it is tested.
OTHERS = {
    "init_process_group": (
        "works: env://, tcp://, file://, a store; again after destroy; with enable_reconfigure"
    ),
    "destroy_process_group": "works, of one group and of all",
    "new_group": "works, also with use_local_synchronization, and in a gloo world",
    "new_subgroups": "works",
    "new_subgroups_by_enumeration": "works: it calls new_group",
    "set_timeout": "works, from torch 2.14 on; before: call `group.set_timeout(timeout)`",
    "split_group": "works from torch 2.15 on; before: call `group.split_group(ranks)`",
    "monitored_barrier": "works from torch 2.14 on; before: call `group.monitored_barrier()`",
    "shrink_group": (
        "works, also after a loss; [collops.torch.shrink()](#after-a-loss) finds out who is left"
    ),
    "record_comm": "has no effect: a profile of torch has no lines of a collops group's calls",
}
ALSO = {
    "all_gather_into_tensor": "all_gather_single, all_gather_into_tensor",
    "gather_single": "gather_single, gather_into_tensor",
    "reduce_scatter_tensor": "reduce_scatter_single, reduce_scatter_tensor",
}


def call_rows() -> list[str]:
    """A line for each call that the table of tests makes."""
    from tests.torch.calls import message_rows, moving_rows, reduction_rows
    from tests.torch.calls.call_table import ROWS

    assert message_rows and moving_rows and reduction_rows
    lines = []
    for call in sorted({row.call for row in ROWS}):
        rows = [row for row in ROWS if row.call == call]
        modes = [mode for mode in MODES if any(mode in row.modes for row in rows)]
        forms = [row.form for row in rows if row.form]
        shown = "; ".join(forms) if len(forms) <= 7 else f"{len(forms)} forms: {_kinds(forms)}"
        since = f", from torch {rows[0].since} on" if rows[0].since else ""
        lines.append(f"| {ALSO.get(call, call)}{since} | {', '.join(modes)} | {shown} |")
    return lines


def _kinds(forms: list[str]) -> str:
    """The common words of many forms, without types and numbers."""
    words = []
    for form in forms:
        word = form.split(",")[0].split(" ")[0] if form[:1].isupper() else form.split(",")[0]
        if word not in words:
            words.append(word)
    return "; ".join(words)


def table() -> str:
    """The lines between the two marks."""
    lines = ["| call | modes | tested cases, with 1, 2 and 3 ranks |", "|---|---|---|"]
    lines += call_rows()
    lines += ["", "| other calls | state |", "|---|---|"]
    lines += [f"| {name} | {state} |" for name, state in sorted(OTHERS.items())]
    return "\n".join(lines) + "\n"


def page_with(text: str) -> str:
    """The page with this table."""
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + text + END + tail


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
