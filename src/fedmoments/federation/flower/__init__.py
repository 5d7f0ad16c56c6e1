"""Thin Flower apps over the federation: one ClientApp, one ServerApp, and a grid that runs both in one process."""
