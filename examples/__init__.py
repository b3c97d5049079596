"""Examples of collops, each a program that checks its own result."""
