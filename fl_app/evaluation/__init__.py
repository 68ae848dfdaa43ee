"""How good communities and models are."""
