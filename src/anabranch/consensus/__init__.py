"""The replicated log, sans-IO: events in, instructions out.

`replica.py` is a voter: the only one of a log, or one of several. Below it, `kept_log.py` is its
own log, `election.py` who leads, `replication.py` and `following.py` the two ends between leader
and follower. `log.py` and `messages.py` are the formats.
"""
