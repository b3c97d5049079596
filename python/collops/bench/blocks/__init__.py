"""Calls that move a block of bytes per rank: their points, variants and tables."""
