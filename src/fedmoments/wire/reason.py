"""Why a contribution is refused: one code for every cause, the same in messages, in the audit log and at the client."""

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """Codes of refusals, in the order in which a contribution is examined.

    Examples
    --------
    >>> str(Reason.TRUNCATED), Reason("replayed").meaning
    ('truncated', 'an older version than the one that was taken in, or one of a client that left')
    """

    meaning: str

    def __new__(cls, code: str, meaning: str) -> "Reason":
        """Return a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OVERSIZED = "oversized", "more bytes than the federation's cap; nothing was parsed"
    TRUNCATED = "truncated", "fewer bytes than the header announces, or than a header has"
    NOT_A_CONTRIBUTION = "not-a-contribution", "the magic number is missing"
    ENDIANNESS = "wrong-endianness", "numbers are not little-endian"
    FORMAT_VERSION = "wrong-format-version", "written in a version of the format that is not spoken here"
    CLIENT_ID = "bad-client-id", "an empty, overlong or unprintable name"
    TRAILING = "trailing-bytes", "bytes behind the end that the header announces"
    CLASSES = "wrong-class-list", "other class names, or another order"
    FINGERPRINT = "wrong-fingerprint", "another encoder, preprocessing or feature map"
    DIMENSION = "wrong-dimension", "features of another dimension, or another number of classes"
    FEDERATION = "wrong-federation", "made for other terms"
    CONTRIBUTION_VERSION = "bad-version", "a contribution that is not numbered from 1"
    UNKNOWN_CLIENT = "unknown-client", "nobody of that name is enrolled"
    REVOKED_CLIENT = "revoked-client", "the client's key was revoked"
    SIGNATURE = "bad-signature", "not signed by the client's identity key"
    DIGEST = "wrong-digest", "the body is not the one that was signed"
    BODY = "malformed-body", "the body is not a safetensors file, or holds other tensors than agreed"
    FRACTIONAL_COUNT = "non-integral-count", "a count that is not a whole number"
    DTYPE = "wrong-dtype", "a tensor of another type than agreed"
    SHAPE = "wrong-shape", "a tensor of another shape than agreed"
    LABELS = "bad-labels", "labels out of range, repeated or not ascending"
    NEGATIVE_COUNT = "bad-count", "a count below one, or more samples than agreed"
    NOT_FINITE = "not-finite", "NaN or infinity"
    ASYMMETRIC = "asymmetric", "a second moment that is not symmetric"
    OUT_OF_RANGE = "out-of-range", "sums that no features within the norm bound have"
    INDEFINITE = "indefinite", "a second moment that is not positive semi-definite"
    INCONSISTENT = "inconsistent", "moments that no data have together"
    REPLAYED = "replayed", "an older version than the one that was taken in, or one of a client that left"
    CONFLICT = "conflict", "another content under a version that was taken in before; kept in quarantine"
    OVERFLOW = "too-many-samples", "the federation would hold more samples than its fixed point allows"
