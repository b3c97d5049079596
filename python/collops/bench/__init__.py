"""Benchmarks on the ranks of this host: ``collops bench``."""

# name -> what it measures.
BENCHES = {
    "linear_parallel": "LinearParallel against its parts, its pipeline, and torch with MPI or gloo",
}
