"""A ZooKeeper ensemble that exists only as a model, and speaks to the real client code.

`tree` is what the servers agree on, `operations` the bytes, `quorum` who decides and in which
order, `server` what one server says to its clients. Everything that happens comes from the doors it
is given, so it runs in the simulation as well as on a real loop, where the contract of the metadata
stores shows that it is like the original.
"""
