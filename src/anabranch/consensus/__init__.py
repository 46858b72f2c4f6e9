"""The replicated log, sans-IO: events in, instructions out.

`log.py` is the format of its records, `replica.py` the state machine of one voter.
"""
