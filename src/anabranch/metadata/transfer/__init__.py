"""Moving whole trees: between two stores, into a file and out of it, and comparing them.

Everything here stands on the store's contract alone and knows no kind of store.
"""
