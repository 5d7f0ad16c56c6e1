"""A fitted head behind HTTP: requests in, class names and probabilities out."""
