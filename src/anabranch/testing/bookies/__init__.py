"""Model bookies for the simulation: storage nodes of BookKeeper as its protocol describes them.

`shelves` is what a bookie holds and decides, pure; `records` is how its journal keeps that;
`server` is one bookie as a process. Nothing here is part of the product.
"""
