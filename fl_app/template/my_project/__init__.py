"""A federated problem: its data, its network and its method."""
