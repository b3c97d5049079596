"""What the operators of collops must compute, written plainly in numpy.

One module per operator holds its reference; `cases` names test cases, `data` fills tensors that
differ in every rank and position, `tolerance` says how far a result may be off where bits are not
promised.  Nothing here loads the library: `python -m golden list` works on any machine that has
numpy.
"""
