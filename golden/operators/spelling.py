"""The two spellings of an operator: that of its files and rows, and that of its plain method.

Commands take both.
"""

from __future__ import annotations

METHODS = {
    "all_gatherv": "all_gather_v",
    "reduce_scatterv": "reduce_scatter_v",
    "all_to_allv": "all_to_all_v",
    "all_to_allv_grouped_matmul": "linear_parallel",
    "grouped_matmul_all_to_allv": "linear_parallel",
}


def operator_name(word: str) -> str:
    """Return an operator's name, as its module has it, for a word of a command line.

    Example:
        >>> operator_name("all_gatherv"), operator_name("all_gather_v"), operator_name("send")
        ('all_gather_v', 'all_gather_v', 'send')
    """
    return METHODS.get(word, word)
