"""Measures the sizes of COLLOPS_TUNING on this machine: ``collops tune``.

``rank_program`` measures AllReduce in one step and in two with the bench's parts, and ``command``
chooses by these times. Nothing reads the result by itself.
"""
