"""Sessions, topics, subscriptions and dispatch."""
