"""Federated k-means on arrays: clients cluster their points jointly."""
