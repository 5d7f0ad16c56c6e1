"""Studies on one machine: simulated federations, methods to compare with, and the papers' tables and figures."""
