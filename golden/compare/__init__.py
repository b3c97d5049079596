"""Compares outputs with the expected ones."""

from .comparison import Comparison, Extreme, compare

__all__ = ["Comparison", "Extreme", "compare"]
