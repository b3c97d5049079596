"""Names the pattern of a difference between outputs and expected ones.

A pattern is named only if it explains the wrong elements of every output and is unlikely to occur
by chance (`evidence.ENOUGH_BITS`); otherwise the result is "no pattern".
"""

from __future__ import annotations

from .arithmetic import rounding, sign_of_zero
from .displacement import displaced_blocks
from .elements import nan_rows, rearranged
from .evidence import Diagnosis, Evidence
from .faults import dropped_rows, known_fault, wrong_factor
from .reductions import wrong_reduction
from .unwritten import missing_blocks, unwritten_gap

KINDS = (
    "swapped blocks",
    "shifted block",
    "repeated block",
    "missing rank",
    "repeated rank",
    "wrong reduction",
    "unwritten gap",
    "rounding",
    "sign of zero",
    "wrong scale",
    "wrong bias",
    "wrong residual",
    "int8 saturation",
    "wrong expert order",
    "wrong leaves",
    "dropped rows",
    "byte order",
    "transposed",
    "NaN",
    "wrong shape",
    "no pattern",
)


def explain(evidence: Evidence) -> Diagnosis:
    """Return the first pattern that explains all wrong elements.

    - missing rank: the rank's block holds poison or zeros, or it was left out of the reduction;
    - unwritten gap: all wrong elements hold poison, or zeros;
    - swapped, shifted, repeated block: the elements are right, but lie elsewhere;
    - rounding: errors so small that another order of additions may have made them;
    - sign of zero: zeros of the other sign, whose errors are all 0;
    - wrong scale, bias, residual, expert order or leaves, int8 saturation: exactly what a known
      fault makes of the call's inputs, where these are known; without them, a factor of each column
      or row;
    - dropped rows: rows of tokens that were left out;
    - repeated rank, wrong reduction: the outputs are those of a sum that has a rank twice, or of
      another reduction than the one that was asked for;
    - byte order, transposed, NaN: the right elements with their bytes swapped or column by column,
      or NaN in place of some rows.

    A wrong shape is explained by `elements.other_shape`.

    Example:
        >>> import numpy as np
        >>> from ..operators.output_layout import OutputLayout
        >>> b = np.arange(16, dtype=np.int32)
        >>> a = b ^ np.int32(0x5A5A5A)
        >>> explain(Evidence([a], [b], [a != b], "int32", [None], OutputLayout(), [""])).kind
        'no pattern'
    """
    hypotheses = (
        sign_of_zero,
        known_fault,
        dropped_rows,
        missing_blocks,
        unwritten_gap,
        wrong_reduction,
        nan_rows,
        rearranged,
        displaced_blocks,
        rounding,
        wrong_factor,
    )
    for hypothesis in hypotheses:
        diagnosis = hypothesis(evidence)
        if diagnosis is not None:
            return diagnosis
    return Diagnosis("no pattern", "none was recognised")
