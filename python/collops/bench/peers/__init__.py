"""The other libraries that operators are compared with: MPI, torch with gloo, and numpy."""

# The names of --peers.
PEERS = ("mpi", "gloo", "torch", "numpy")
