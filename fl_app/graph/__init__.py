"""The server's similarity graph; all functions take and return arrays."""
