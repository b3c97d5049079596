"""The operators that are measured: a module or a folder for each."""
