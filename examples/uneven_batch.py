"""A transformer layer over a batch that does not divide by the number of ranks.

Attention is data-parallel: every rank has whole documents, one rank none at all. The MLP is
tensor-parallel: every rank has some of its hidden units. So all ranks' rows are gathered before the
MLP, and its partial sums are reduced and scattered back to the same rows after it, as inference
with data-parallel attention does:

    documents -> attention -> all_gatherv -> MLP, my hidden units -> reduce_scatterv -> documents

At the end one process does the whole batch, and every element must agree within a bound that
follows from the number of terms in its sums and their magnitudes.

    python examples/uneven_batch.py --ranks 4
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from collops.golden.data.bounds import matmul_bound

import collops
from collops.testing import RankErrors, run_ranks

Array = npt.NDArray[np.float32]
Bound = npt.NDArray[np.float64]
Documents = Sequence[bytes]

WIDTH, HEADS, HIDDEN = 64, 4, 250  # 250 hidden units: 63 on two of four ranks, 62 on the others
DOCUMENTS, CONTEXT = 11, 512
MAX_RANKS = 64
# The checkout of this file or, once installed, the package; both contain enough texts.
HOME = Path(__file__).resolve().parents[1]
TEXTS = ("*.md", "docs/*.md", "golden/**/*.py", "*.py", "examples/*.py")


@dataclass(frozen=True)
class Weights:
    """The layer's weights; every rank makes all of them and uses its part of the MLP's."""

    embedding: Array  # [256, WIDTH]: a token is a byte
    query_key_value: Array  # [3, WIDTH, HEADS, WIDTH / HEADS]
    output: Array  # [HEADS, WIDTH / HEADS, WIDTH]
    up: Array  # [WIDTH, HIDDEN]
    down: Array  # [HIDDEN, WIDTH]


def make_weights() -> Weights:
    """Random weights from a fixed seed, of a size that keeps activations near 1."""
    random = np.random.default_rng(2024)

    def normal(terms: int, *shape: int) -> Array:
        return (random.standard_normal(shape) / math.sqrt(terms)).astype(np.float32)

    head = WIDTH // HEADS
    return Weights(
        embedding=normal(1, 256, WIDTH),
        query_key_value=normal(WIDTH, 3, WIDTH, HEADS, head),
        output=normal(WIDTH, HEADS, head, WIDTH),
        up=normal(WIDTH, WIDTH, HIDDEN),
        down=normal(HIDDEN, HIDDEN, WIDTH),
    )


def read_documents() -> list[bytes]:
    """The beginnings of some texts, in whole paragraphs of at most CONTEXT bytes if possible."""
    paths = [path for pattern in TEXTS for path in sorted(HOME.glob(pattern))]
    texts = [path.read_bytes().strip() for path in paths]
    return [
        text if len(text) <= CONTEXT else text[:CONTEXT].rpartition(b"\n\n")[0] or text[:CONTEXT]
        for text in texts
        if text
    ][:DOCUMENTS]


def deal(documents: Documents, ranks: int) -> list[Documents]:
    """Shares of 1 : 2 : 3 : ..., and nothing for rank 1, which has no requests."""
    weights = np.array([0 if rank == 1 else max(rank, 1) for rank in range(ranks)])
    ends = np.rint(weights.cumsum() / weights.sum() * len(documents)).astype(int).tolist()
    return [documents[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def normalized(x: Array) -> Array:
    """Rows of root mean square 1."""
    root_mean_square = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-6))
    return np.asarray(x / root_mean_square)


def attention(x: Array, weights: Weights) -> Array:
    """Causal attention within one document, [tokens, WIDTH] to [tokens, WIDTH].

    einsum adds in a fixed order, so a document's attention has the same bits on whatever rank it
    is computed; a BLAS need not promise that, and the bound at the end starts from it.
    """
    query, key, value = np.einsum("td,sdhe->shte", x, weights.query_key_value)
    scores = np.einsum("hqe,hke->hqk", query, key) / np.float32(math.sqrt(WIDTH // HEADS))
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    share = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share /= share.sum(axis=-1, keepdims=True)
    heads = np.einsum("hqk,hke->qhe", share, value)
    return np.asarray(np.einsum("qhe,hed->qd", heads, weights.output))


def attended(documents: Documents, weights: Weights) -> Array:
    """The rows of all tokens after attention, [tokens of all documents, WIDTH]."""
    rows = [np.empty((0, WIDTH), np.float32)]
    for document in documents:
        x = weights.embedding[np.frombuffer(document, np.uint8)]
        rows.append(x + attention(normalized(x), weights))
    return np.concatenate(rows)


def layer(comm: collops.Communicator, shares: Sequence[Documents], weights: Weights) -> Array:
    """The layer on one rank: takes its own documents, returns their rows."""
    tokens = [sum(map(len, documents)) for documents in shares]
    residual = attended(shares[comm.rank], weights)

    # The other ranks read memory of comm.empty in place, without a copy.
    rows = comm.empty(residual.shape, np.float32)
    rows[:] = normalized(residual)
    gathered = comm.all_gatherv(rows, sizes=tokens)

    mine = np.array_split(np.arange(HIDDEN), comm.size)[comm.rank]
    hidden = np.maximum(gathered @ weights.up[:, mine], 0)
    partial = comm.empty(gathered.shape, np.float32)
    np.matmul(hidden, weights.down[mine], out=partial)
    return np.asarray(residual + comm.reduce_scatterv(partial, sizes=tokens, op="sum"))


def whole_layer(documents: Documents) -> tuple[Array, Bound]:
    """The layer in one process, and the largest error of a rank's result, by element.

    Both are float32 sums of the same products in different orders. An element of hidden has WIDTH
    of them; ReLU makes no difference larger, and `down` carries it on. An element of the result
    has HIDDEN more, and the residual.
    """
    weights = make_weights()
    residual = attended(documents, weights)
    rows = normalized(residual)
    hidden = np.maximum(rows @ weights.up, 0)
    result = residual + hidden @ weights.down

    up, down = np.abs(weights.up).astype(np.float64), np.abs(weights.down).astype(np.float64)
    off = matmul_bound(np.abs(rows) @ up, WIDTH, "float32")
    magnitude = np.abs(residual) + (hidden + off) @ down
    return result, off @ down + matmul_bound(magnitude, HIDDEN + 1, "float32")


def run_rank(rank: int, shares: Sequence[Documents]) -> Array:
    """The main function of each rank: connects to the others and runs the layer."""
    with collops.init() as comm:
        return layer(comm, shares, make_weights())


class Parser(argparse.ArgumentParser):
    """The command line; an error in it is one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        self.add_argument("--ranks", type=int, default=4, metavar="N", help="processes (default 4)")

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the layer on ranks and in one process, and compares: 0 if they agree, 1 if not."""
    parser = Parser()
    ranks = parser.parse_args(arguments).ranks
    if not 1 <= ranks <= MAX_RANKS:
        parser.error(f"argument --ranks: must be from 1 to {MAX_RANKS}, got {ranks}")
    documents = read_documents()
    shares = deal(documents, ranks)
    try:
        results = run_ranks(run_rank, ranks, shares)
    except RankErrors as failed:
        reason = next(iter(failed.errors.values()))
        if not isinstance(reason, collops.Error):
            raise
        print(f"{parser.prog}: {reason}", file=sys.stderr)
        return 2
    return 0 if report(shares, results, *whole_layer(documents)) else 1


def report(
    shares: Sequence[Documents], results: Sequence[Array], expected: Array, bound: Bound
) -> bool:
    """Prints a line per rank; returns whether all of them agree with `expected`."""
    print(f"one transformer layer over {sum(map(len, shares))} documents, {len(expected)} tokens")
    print("rank  documents  tokens  max error / bound")
    agree, begin = True, 0
    for rank, (documents, result) in enumerate(zip(shares, results, strict=True)):
        block = slice(begin, begin := begin + sum(map(len, documents)))
        part = np.max(np.abs(result - expected[block]) / bound[block], initial=0.0)
        agree = agree and bool(part <= 1)  # a NaN does not agree
        error = f"{part:.4f}" if len(result) else "-"
        print(f"{rank:4}  {len(documents):9}  {len(result):6}  {error:>17}")
    print("equal to one process doing it all" if agree else "NOT equal to one process doing it all")
    return agree


if __name__ == "__main__":
    sys.exit(main())
