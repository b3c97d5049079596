"""The operators, one module each, listed in `table`."""
