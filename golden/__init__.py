"""The reference implementations of collops' operators in numpy, and their test cases.

`data` has dtypes, tensors that differ in every rank and position, reductions, and error bounds.
`operators` has one module per operator, listed in `operators.table`; `cases` has their cases.
`case_files` reads and writes cases, and reads ATB's case files; `compare` finds differences, and
`explain` names their pattern.  Golden never loads the library: `python -m golden` needs numpy only.
"""
