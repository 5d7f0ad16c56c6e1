"""From a fitted head to an application: exports that need no fedmoments, and what is said about a model."""
