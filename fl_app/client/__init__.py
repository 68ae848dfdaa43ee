"""The client side: local training, attacks and privacy."""
