"""Which client holds which sample: schemes are pure functions of labels, a number of clients and a seed."""
