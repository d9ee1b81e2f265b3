# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Encoding an array of floats by its domain, value by value.

Bit for bit what `Domain._encode_column` does, without its temporary arrays and without its dozen
calls of NumPy a column, which made up nearly all of the time for one row.
"""

from cython cimport floating
from cython.parallel cimport prange
from libc.math cimport NAN, isinf, isnan
from libc.stdint cimport int8_t, int64_t

import numpy as np

# Rows that are encoded, column after column, before the next rows are taken: what of an array in C
# order, read by columns, is needed again then stays in the cache.
cdef Py_ssize_t BLOCK = 256

UNKNOWN_CODE = -1.0
cdef float UNKNOWN = UNKNOWN_CODE


cdef class Codebook:
    """A domain as the kernel reads it.

    Parameters
    ----------
    lower, upper : float32 arrays of shape (n_features,)
        Bounds of the numeric features.
    keys : list of float64 arrays or None per feature
        The numbers among the categories of a feature, increasing; None for a numeric feature.
    places : list of float arrays or None per feature
        The code of each of these categories.
    """

    cdef const float[::1] lower
    cdef const float[::1] upper
    cdef const int64_t[::1] starts      # keys[starts[f]:starts[f + 1]] belong to feature f
    cdef const double[::1] keys
    cdef const float[::1] places
    cdef const int8_t[::1] is_categorical

    def __init__(self, lower, upper, keys, places):
        self.lower = lower
        self.upper = upper
        self.is_categorical = np.array([own is not None for own in keys], dtype=np.int8)
        parts = [[] if own is None else own for own in keys]
        self.starts = np.cumsum([0] + [len(own) for own in parts], dtype=np.int64)
        # One spare element, so that every part has an address.
        self.keys = np.concatenate([*parts, [0.0]])
        parts = [[] if own is None else own for own in places]
        self.places = np.concatenate([*parts, [0.0]]).astype(np.float32)

    def encode(self, const floating[:, :] X, float[:, :] out, int n_threads=1):
        """Encode X.

        Parameters
        ----------
        X : float32 or float64 array of shape (n_rows, n_features)
        out : float32 array of shape (n_rows, n_features)
            Receives the codes.
        n_threads : int

        Returns
        -------
        int
            The first numeric feature with infinite values, for which there are no codes; -1: none.
        """
        cdef Py_ssize_t start
        is_infinite = np.zeros(X.shape[1], dtype=np.int8)
        cdef int8_t[::1] infinite = is_infinite
        for start in prange(0, X.shape[0], BLOCK, nogil=True, num_threads=n_threads):
            self.encode_block(X, out, start, min(start + BLOCK, X.shape[0]), infinite)
        return int(is_infinite.argmax()) if is_infinite.any() else -1

    cdef void encode_block(self, const floating[:, :] X, float[:, :] out, Py_ssize_t start,
                           Py_ssize_t end, int8_t[::1] infinite) noexcept nogil:
        cdef Py_ssize_t f
        cdef int64_t first
        for f in range(X.shape[1]):
            if self.is_categorical[f]:
                first = self.starts[f]
                encode_categories(X, out, f, start, end, &self.keys[first], &self.places[first],
                                  self.starts[f + 1] - first)
            elif encode_numbers(X, out, f, start, end, self.lower[f], self.upper[f]):
                infinite[f] = 1


cdef bint encode_numbers(const floating[:, :] X, float[:, :] out, Py_ssize_t f, Py_ssize_t start,
                         Py_ssize_t end, float lower, float upper) noexcept nogil:
    """Round to 32 bits, what lies beyond their range to a bound; True: a value is infinite."""
    cdef bint infinite = False
    cdef float code
    cdef Py_ssize_t i
    for i in range(start, end):
        code = <float>X[i, f]
        if isinf(code):
            infinite |= isinf(X[i, f])
            code = upper if code > 0 else lower
        out[i, f] = code
    return infinite


cdef void encode_categories(const floating[:, :] X, float[:, :] out, Py_ssize_t f,
                            Py_ssize_t start, Py_ssize_t end, const double *keys,
                            const float *places, int64_t n_keys) noexcept nogil:
    """Find each value among the keys, by halving steps that take no branch on the data."""
    cdef const double *found
    cdef int64_t left, half
    cdef double value
    cdef Py_ssize_t i
    for i in range(start, end):
        value = X[i, f]
        found = keys
        left = n_keys
        while left > 1:
            half = left // 2
            found += half if found[half] <= value else 0
            left -= half
        if n_keys > 0 and found[0] == value:
            out[i, f] = places[found - keys]
        else:
            out[i, f] = NAN if isnan(value) else UNKNOWN
