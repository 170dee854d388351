"""Random numbers: streams that are a contract, keys that are used once."""
