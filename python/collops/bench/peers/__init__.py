"""The other libraries that operators are compared with: MPI, torch with gloo, and numpy."""

# As --peers names them.
PEERS = ("mpi", "gloo", "torch", "numpy")
