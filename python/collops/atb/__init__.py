"""The structs of ATB and the operation that they configure."""
