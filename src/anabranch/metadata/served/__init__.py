"""One store for several processes: a server in front of a local store, and the client's side of it.

`frames` and `messages` are the protocol, `session_clock` and `lease` decide about time; all four
are pure. `server` and `server_connection` are one shell, `client` and `link` the other.
"""
