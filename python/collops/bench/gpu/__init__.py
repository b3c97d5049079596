"""Benchmarks on GPUs: ranks that are threads of one process, timed by events of CUDA's driver.

The operators' own modules say what is measured, as on the host: the matrices, the streams and the
clock come from a ``GpuPlace``, which stands in for the host's ``Place``.
"""
