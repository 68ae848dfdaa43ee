"""A finished run in use: its models, scores, predictions and exports."""
