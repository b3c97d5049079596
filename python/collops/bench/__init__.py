"""Benchmarks on the ranks of one host or several: ``collops bench``.

This folder measures, launches, and writes tables, plots and JSON; it knows no operator. What is
measured of each is a module of ``operators/``; what collectives share is in ``collectives/``, and
other libraries are in ``peers/``.
"""
