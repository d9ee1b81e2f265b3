# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""A table as 8-bit codes, so that a large one is parted within the cache.

A random forest reads its columns in no order that memory likes: in a deep node nearly every value
takes a line of 64 bytes from memory. Codes take a quarter of the room of the values and keep their
order, so that a split by a threshold sends all records of most codes to one side; only for records
of the code that holds the threshold is the value itself read. The result is that of the values,
bit for bit.

The codes lie in memory twice: by feature, for large nodes, and by record, so that the codes of the
records of a small node are gathered with one line of memory each (`_tree.open_local`).
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

# Values of a column from which the range and the codes of its cells are chosen.
SAMPLE = 8192

cdef enum:
    BLOCK = 1024            # records that are turned, feature after feature, before the next
    MOST_GATHERED = 64      # features up to which it pays to gather all of a record

cdef extern from *:
    """
    #if defined(__linux__)
    #include <stdint.h>
    #include <sys/mman.h>
    static void lumberjack_discard(void *memory, size_t size)
    {
        const uintptr_t page = 65536;  /* or a part of it: no other size is in use */
        uintptr_t start = ((uintptr_t)memory + page - 1) / page * page;
        uintptr_t end = ((uintptr_t)memory + size) / page * page;
        if (start < end)
            madvise((void *)start, end - start, MADV_DONTNEED);
    }
    #else
    static void lumberjack_discard(void *memory, size_t size) { (void)memory; (void)size; }
    #endif
    """
    void lumberjack_discard(void *memory, size_t size) noexcept nogil


cdef class Codes:
    """The codes of a table.

    Parameters
    ----------
    X : float32 array of shape (n_features, n_records)
        Encoded features, one after the other.
    n_categories : int32 array of shape (n_features,)
        0 for a numeric feature.
    n_threads : int
    stop : int32 array of shape (1,), optional
        Set it to non-zero from another thread to give up; the codes are void then.
    overwrite_X : bool
        Give back the memory of columns whose codes say all, where the system can; they hold zeros
        afterwards, or what they held.
    """

    def __init__(self, const float[:, ::1] X, const int32_t[::1] n_categories, int n_threads=1,
                 const int32_t[::1] stop=None, bint overwrite_X=False):
        cdef const int32_t *stopped = &stop[0] if stop is not None else NULL
        cdef int64_t start
        cdef int32_t f
        cdef Scale *scales
        self.by_feature = np.empty((X.shape[0], X.shape[1]), dtype=np.uint8)
        self.scales = np.zeros((X.shape[0], sizeof(Scale)), dtype=np.uint8)
        scales = <Scale *>&self.scales[0, 0]
        for f in range(<int32_t>X.shape[0]):
            if n_categories[f] == 0:
                choose_scale(np.asarray(X[f, ::max(1, X.shape[1] // SAMPLE)]), &scales[f])
        self.c.n_features = <int32_t>X.shape[0]
        self.c.n_records = X.shape[1]
        self.c.by_feature = &self.by_feature[0, 0]
        self.c.scales = scales
        for f in prange(self.c.n_features, nogil=True, num_threads=n_threads, schedule="dynamic"):
            if stopped != NULL and stopped[0] != 0:
                continue
            if n_categories[f] == 0:
                code_numbers(&X[f, 0], self.c.n_records, &scales[f], &self.by_feature[f, 0])
            else:
                code_categories(&X[f, 0], self.c.n_records, &self.by_feature[f, 0])
                if overwrite_X and n_categories[f] < LAST_CODE:
                    lumberjack_discard(<void *>&X[f, 0], self.c.n_records * sizeof(float))
        if self.c.n_features > MOST_GATHERED:
            return
        self.by_record = np.empty((X.shape[1], X.shape[0]), dtype=np.uint8)
        self.c.by_record = &self.by_record[0, 0]
        for start in prange(0, self.c.n_records, BLOCK, nogil=True, num_threads=n_threads):
            if stopped != NULL and stopped[0] != 0:
                continue
            transpose(&self.c, start, min(start + BLOCK, self.c.n_records), &self.by_record[0, 0])


cdef choose_scale(sample, Scale *scale):
    """Cells over the bulk of the values, and codes that hold about equally many of them."""
    cdef uint8_t[::1] codes
    cdef int32_t i
    sample = np.sort(sample[~np.isnan(sample)]).astype(np.float64)
    tail = len(sample) // 1000
    low, high = (sample[tail], sample[len(sample) - 1 - tail]) if len(sample) else (0.0, 0.0)
    scale.offset = low
    scale.factor = min(N_CELLS / (high - low), 1e30) if high > low else 0.0
    cells = np.clip((sample - low) * scale.factor, 0, N_CELLS - 1).astype(int)
    mass = np.cumsum(np.bincount(cells, minlength=N_CELLS)) / max(1, len(sample))
    codes = (1 + np.minimum(np.append(0, mass[:N_CELLS - 1]) * LAST_CODE, LAST_CODE - 1)).astype(
        np.uint8
    )
    for i in range(N_CELLS):
        scale.codes[i] = codes[i]
    for i in range(256):
        scale.least[i] = INFINITY
        scale.greatest[i] = -INFINITY


cdef inline uint8_t code_of(const Scale *scale, float x) noexcept nogil:
    """The code of a number that is not missing; it never falls as x grows."""
    cdef float cell = (x - scale.offset) * scale.factor
    cell = cell if cell > 0 else 0
    cell = cell if cell < N_CELLS - 1 else N_CELLS - 1
    return scale.codes[<int32_t>cell]


cdef void code_numbers(const float *column, int64_t n, Scale *scale, uint8_t *codes) noexcept nogil:
    cdef int64_t i
    cdef float x
    cdef uint8_t code
    for i in range(n):
        x = column[i]
        code = code_of(scale, x) if x == x else MISSING_CODE
        codes[i] = code
        if x < scale.least[code]:
            scale.least[code] = x
        if x > scale.greatest[code]:
            scale.greatest[code] = x


cdef void code_categories(const float *column, int64_t n, uint8_t *codes) noexcept nogil:
    cdef int64_t i
    cdef float x
    for i in range(n):
        x = column[i]
        if x != x:
            codes[i] = MISSING_CODE
        elif x < 0:
            codes[i] = UNKNOWN_CODE
        else:
            codes[i] = <uint8_t>(x + 1) if x < LAST_CODE - 1 else LAST_CODE


cdef void transpose(const CodeView *view, int64_t start, int64_t end, uint8_t *out) noexcept nogil:
    cdef int32_t f
    cdef int64_t i
    cdef const uint8_t *column
    for f in range(view.n_features):
        column = view.by_feature + f * view.n_records
        for i in range(start, end):
            out[i * view.n_features + f] = column[i]


cdef void fill_sides(const CodeView *view, int32_t feature, float threshold, bint categorical,
                     bint missing_left, uint8_t *sides) noexcept nogil:
    """The side to which a split sends the records of each of the 256 codes."""
    cdef const Scale *scale = &view.scales[feature]
    cdef uint8_t code
    memset(sides, RIGHT, 256)
    if not categorical:
        code = code_of(scale, threshold)
        memset(sides, LEFT, code)
        if scale.greatest[code] <= threshold:
            sides[code] = LEFT
        elif scale.least[code] <= threshold:
            sides[code] = UNCLEAR
    elif threshold < LAST_CODE - 1:
        sides[<int32_t>threshold + 1] = LEFT
    else:
        sides[LAST_CODE] = UNCLEAR
    sides[MISSING_CODE] = LEFT if missing_left else RIGHT
