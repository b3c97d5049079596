"""The main job on real texts, and both operators at the ATB level, compared with golden.

Run it with ``python -m collops.demo``.
"""
