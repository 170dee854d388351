"""Search spaces: the schedules of each family of operators, and predictions of time.

`library` imports all schedules. Predictions of what an operator costs need none.
"""
