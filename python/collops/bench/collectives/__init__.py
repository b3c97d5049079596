"""Collectives: their points, variants, limit and table, for one operator as for another.

A module of ``operators/`` says what one operator calls; the movement of data that several have in
common (everybody's blocks to everybody, sums to their owners, ...) is a module here.
"""
