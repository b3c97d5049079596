"""The operators, one module each, found through `table`."""
