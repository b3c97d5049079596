"""Compares outputs with what they must be."""

from .comparison import Comparison, Extreme, compare

__all__ = ["Comparison", "Extreme", "compare"]
