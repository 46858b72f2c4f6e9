"""The checksummed record log that metadata and ledgers share."""
