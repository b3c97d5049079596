"""Predicts a call on hosts that need not be there: ``collops plan``.

``prediction`` asks the core to simulate the call's schedule, ``costs`` has what hosts and network
cost, ``calibration`` finds it from rows of the bench, ``limits`` says what breaks first, and
``command`` reads the options and prints. No rank is started.
"""
