"""Dtypes, test data, counts, reductions and error bounds, independent of any operator."""

from .kinds import KINDS, fill, poison

__all__ = ["KINDS", "fill", "poison"]
