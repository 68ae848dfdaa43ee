"""The server's similarity graph: arrays in, arrays out."""
