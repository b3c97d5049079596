"""What messages and the collectives with a root refuse."""

from __future__ import annotations

import numpy as np
import pytest
from golden.operators.rooted_collectives import gatherv, reduce, scatterv
from golden.operators.send_recv import send_recv


def test_wrong_arguments_are_refused() -> None:
    xs = [np.zeros(4), np.zeros((2, 2)), np.zeros(3), np.zeros(4, np.int8)]
    for pair, message in (
        ((0, 4), r"destination must be in \[0, 4\), got 4"),
        ((-1, 0), r"source must be in \[0, 4\), got -1"),
        ((1, 1), "rank 1 cannot send to itself"),
        ((0, 2), "rank 0 sends 4 elements of float64, rank 2 receives 3 of float64"),
        ((0, 3), "rank 0 sends 4 elements of float64, rank 3 receives 4 of int8"),
    ):
        with pytest.raises(ValueError, match=message):
            send_recv(xs, *pair)


def test_refusals_of_collectives_with_a_root() -> None:
    with pytest.raises(ValueError, match=r"reduce: xs\[1\] is \(3,\)"):
        reduce([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match="op 'mean' is unknown"):
        reduce([np.zeros(2, np.int8)] * 2, "mean")
    for other in (np.zeros((2, 4)), np.zeros((2, 3), np.int8)):
        with pytest.raises(ValueError, match=r"gatherv: xs\[1\] is \(2, \d\)"):
            gatherv([np.zeros((1, 3)), other])
    with pytest.raises(ValueError, match=r"gatherv: xs\[0\] is \(\)"):
        gatherv([np.zeros(())])
    for sizes in ([1, 1], [4, -1]):
        with pytest.raises(ValueError, match="scatterv: sizes are"):
            scatterv(np.zeros((3, 2)), sizes)
