"""ATB's parameter structs, and the operation that they configure."""
