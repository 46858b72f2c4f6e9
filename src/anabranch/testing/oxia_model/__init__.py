"""An Oxia cluster that exists only as a model, and answers the calls of the real client code.

`calls` carries calls as gRPC does, but over the door `network`; `shard` is what a shard keeps,
`cluster` who leads which shard and which sessions live, `service` what a server answers.
"""
