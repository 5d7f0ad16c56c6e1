"""The bytes that leave a client: a signed header and a safetensors body, checked before anything is believed."""

from fedmoments.wire.agreement import Agreement
from fedmoments.wire.contribution import Contribution, decode, encode, pack_bundle, unpack_bundle
from fedmoments.wire.header import Header, check_client_id, read_header
from fedmoments.wire.keys import IdentityKey, PublicKey
from fedmoments.wire.reason import Reason
from fedmoments.wire.tensors import Withheld

__all__ = [
    "Agreement",
    "Contribution",
    "Header",
    "IdentityKey",
    "PublicKey",
    "Reason",
    "Withheld",
    "check_client_id",
    "decode",
    "encode",
    "pack_bundle",
    "read_header",
    "unpack_bundle",
]
