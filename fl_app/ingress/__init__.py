"""Where a reply becomes trusted: the only place that reads what a client sent."""

from fl_app.ingress.rejection import RejectionError, trusted

__all__ = ["RejectionError", "trusted"]
