"""One suite per contract, run on every implementation: test modules subclass these classes.

A class here holds the cases of one behaviour; a subclass gives the fixture that it asks for.
"""
