"""Ranks: who this process is among them, and starting, watching and ending them."""
