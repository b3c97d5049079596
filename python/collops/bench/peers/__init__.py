"""The other libraries: MPI, torch with gloo, and numpy."""
