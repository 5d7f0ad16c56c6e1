"""What the pages on privacy promise, and which tests attack it: a file a page, kept true by ``tests/test_promises.py``."""
