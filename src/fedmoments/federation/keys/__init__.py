"""Certificates of a federation's server, keys of its parties and of its helper, and the files that hold them."""

from fedmoments.federation.keys.parties import (
    Authority,
    Card,
    ClientKeys,
    load_identity,
    make_authority,
    make_client,
    read_card,
)

__all__ = [
    "Authority",
    "Card",
    "ClientKeys",
    "load_identity",
    "make_authority",
    "make_client",
    "read_card",
]
