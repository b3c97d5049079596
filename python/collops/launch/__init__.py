"""The rank of this process; starting, watching and ending ranks."""
