"""Engines: they run the rounds in this process, in Flower's simulation or as a deployment."""
