"""The tests, a package: what several use is imported as `from tests.ROOM import ...`."""
