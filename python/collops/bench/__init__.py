"""Benchmarks on the ranks of one host or several: ``collops bench``.

``operators`` lists what is measured; ``command`` prints it, ``ranks`` measures it, and neither
knows an operator. Other libraries are in ``peers/``; ``programs`` compares the calls from C++.
"""
