"""LinearParallel: what is measured of it, and beside what."""
