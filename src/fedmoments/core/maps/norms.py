"""Row norms that neither overflow nor underflow on the way."""

import numpy as np
import numpy.typing as npt

__all__ = ["rescaled"]

# Squares of numbers in this range are normal float64 numbers, and so are sums of up to 2²⁴ of them.
_LOW, _HIGH = 2.0**-500, 2.0**500


def rescaled(
    X: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Write each row x as y·2^e with ‖y‖ safe to compute.

    Parameters
    ----------
    X : array of shape (n, d)

    Returns
    -------
    Y : array of shape (n, d)
        X itself when no row has to be scaled, which is the usual case.
    lengths : array of shape (n,)
        ‖y‖; NaN or infinite for a row that is not finite.
    exponents : array of shape (n,), int32
        e; 0 for rows that were left alone.

    Examples
    --------
    >>> Y, lengths, exponents = rescaled(np.array([[3.0, 4.0], [3e300, 4e300]]))
    >>> np.ldexp(lengths, exponents).tolist()
    [5.0, 5e+300]
    """
    peaks = np.maximum(X.max(axis=1), -X.min(axis=1))
    exponents = np.zeros(len(X), dtype=np.int32)
    extreme = np.isfinite(peaks) & (peaks > 0) & ((peaks < _LOW) | (peaks > _HIGH))
    if extreme.any():
        exponents[extreme] = np.frexp(peaks[extreme])[1]
        X = X.copy()
        X[extreme] = np.ldexp(X[extreme], -exponents[extreme][:, np.newaxis])
    return X, np.sqrt(np.einsum("ij,ij->i", X, X)), exponents
