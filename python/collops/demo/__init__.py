"""Runs the two examples on real texts, and AllGatherV and ReduceScatterV, compared with golden.

Run it with ``python -m collops.demo``.
"""
