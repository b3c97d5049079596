"""What all of golden is made of: dtypes, test data, counts, reductions and bounds.

Knows no operator.
"""

from .kinds import KINDS, fill, poison

__all__ = ["KINDS", "fill", "poison"]
