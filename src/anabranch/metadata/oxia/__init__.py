"""The metadata store `oxia:`: our client of Oxia's servers, and the tree it makes of their keys.

Pure: `keys`, `routing`, `positions`, `requests`. Over channels: `shard`, `sessions`, `feed`,
`client`. The contract of a metadata store: `store` and what it is made of.
"""
