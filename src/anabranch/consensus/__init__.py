"""The replicated log as a pure state machine: events in, instructions out."""
