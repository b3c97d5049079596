"""What the operators of collops must compute, written plainly in numpy.

One module per operator holds its reference; `cases` names test cases, `data` fills tensors that
differ in every rank and position, `tolerance` says how far a result may be off where bits are not
promised.  `csv_cases` reads ATB's case files, `row_case` makes their tensors; `compare` says what
differs, and `explain` why.  Nothing here loads the library: `python -m golden` works on any machine
that has numpy.
"""
