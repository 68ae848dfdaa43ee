"""Validates replies: the only package that reads what a client sent."""

from fl_app.ingress.rejection import RejectionError, trusted

__all__ = ["RejectionError", "trusted"]
