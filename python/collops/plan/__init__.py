"""Predicts the cost of a call on hosts that need not exist: ``collops plan``.

``prediction`` asks the core what the call's schedule needs, and finds the times from the costs of
hosts and network, which ``calibration`` finds from rows of the bench. No rank is started.
"""
