"""LinearParallel: rows gathered, multiplied by a weight, added up and scattered."""
