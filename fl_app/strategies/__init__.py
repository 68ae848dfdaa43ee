"""One Flower Strategy per method."""
