"""Golden's arrays in the memory of devices, by the library that is there for it."""
