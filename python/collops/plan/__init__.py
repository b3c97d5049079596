"""Predicts the cost of a call on hosts that need not exist: ``collops plan``.

``prediction`` asks the core to simulate the call's schedule, ``costs`` has what hosts and network
cost, ``calibration`` finds it from rows of the bench, ``limits`` lists the limits, and
``command`` reads the options and prints. No rank is started.
"""
