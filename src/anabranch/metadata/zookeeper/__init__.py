"""The metadata store on Apache ZooKeeper: an asyncio client of its protocol, and the store on it.

From the bottom up: `jute` (bytes), `requests` and `replies` (operations), `connection` (frames in
order), `session` (what may be believed of a session), `link` (connecting again and again),
`client` (ZooKeeper's own operations), `store` (the contract).
"""
