"""The machine that drives live operations: phases, journal, driver, participants, status.

What an operation does is in a folder of its own beside this one; nothing here knows which ones.
"""
