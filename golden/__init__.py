"""What the operators of collops must compute, written plainly in numpy.

`data` has dtypes, tensors that differ in every rank and position, reductions, and bounds where bits
are not promised.  `operators` has one module per operator, found through `operators.table`; `cases`
has their cases.  `case_files` reads and writes cases, and reads ATB's; `compare` says what differs,
and `explain` why.  Nothing here loads the library: `python -m golden` works on any machine that has
numpy.
"""
