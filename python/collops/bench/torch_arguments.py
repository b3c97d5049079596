"""The options of ``collops bench torch``, which completion knows without torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from collops.terminal.arguments import Parser, count, counts, words

CALLS = {
    "all_reduce": "all_reduce of a tensor",
    "broadcast": "broadcast from rank 0",
    "reduce": "reduce to rank 0",
    "all_gather": "all_gather into a list",
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter of a list",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_to_all_single": "all_to_all_single, equal parts",
    "gather": "gather to rank 0",
    "scatter": "scatter from rank 0",
    "barrier": "barrier, which has no size",
    "dp_attention": "a shared MLP after data-parallel attention; rank 0 has 4 times the tokens",
    "ddp": "a step of training a GPT of 6 MB under DistributedDataParallel",
    "fsdp2": "the same under fully_shard()",
    "fsdp2_windows": "the same with collops.torch.fsdp.use(); gloo's without",
}
WAYS = ("sync", "async", "functional")
SIZES = (64, 4 << 10, 64 << 10, 1 << 20, 64 << 20)
QUICK_SIZES = (64, 64 << 10)
ITERATIONS, QUICK_ITERATIONS = 11, 3
_DESCRIPTION = """
Calls of torch.distributed on a collops group and on gloo's, in turn on the same ranks in one run.
Both groups are in one process. collops's calls run on pinned ranks, gloo's on all cores behind a
barrier that sleeps. collops's time is the median of the rounds, gloo's the 10th percentile.
Steps of training (ddp, fsdp2, fsdp2_windows) are measured on each rank alone as well: what they
take longer with the others is the share that is communication ("comm" in the table).
"""


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops bench torch",
        description=_DESCRIPTION,
        epilog="calls:\n" + "\n".join(f"  {name:22} {what}" for name, what in CALLS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", type=count, default=2, metavar="N", help="ranks of this host (2)")
    add(
        "--calls",
        type=lambda text: words(text, tuple(CALLS)),
        default=tuple(CALLS),
        metavar="LIST",
        help="of those below (all)",
    )
    add(
        "--ways",
        type=lambda text: words(text, WAYS),
        default=WAYS,
        metavar="LIST",
        help=f"of {', '.join(WAYS)} (all); dp_attention and steps of training have their own",
    )
    add(
        "--sizes",
        type=lambda text: counts(text, ","),
        metavar="LIST",
        help=f"bytes of each rank's input ({','.join(map(str, SIZES))})",
    )
    add("--iterations", type=count, metavar="N", help=f"rounds that count ({ITERATIONS})")
    add("--quick", action="store_true", help="two sizes, few rounds: shows that all works here")
    add("--json", type=Path, metavar="FILE", help="write one JSON object per row")
    add("--plot", type=Path, metavar="FILE.png", help="draw the times by size")
    return parser
