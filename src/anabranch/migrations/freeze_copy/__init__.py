"""Replace the metadata store: copy while it is written, hold writes for a moment, switch."""
