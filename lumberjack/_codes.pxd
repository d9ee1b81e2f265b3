"""A table as 8-bit codes, in the order of its values."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    MISSING_CODE = 0
    LAST_CODE = 254         # of values: 1 to 254; later categories share the last
    UNKNOWN_CODE = 255      # a category that is not declared
    N_CELLS = 4096          # of a numeric feature, from which its codes are made
    RIGHT = 0
    LEFT = 1
    UNCLEAR = 2             # the value itself decides

# How the numbers of a feature become codes.
cdef struct Scale:
    float offset            # the cell of x is (x - offset) * factor, cut off at both ends
    float factor
    uint8_t[N_CELLS] codes  # of the cells, increasing
    float[256] least        # of the values of a code; without any: infinite, above `greatest`
    float[256] greatest

# A C view of Codes.
cdef struct CodeView:
    int32_t n_features
    int64_t n_records
    const uint8_t *by_feature   # (n_features, n_records)
    const uint8_t *by_record    # (n_records, n_features), or NULL
    const Scale *scales         # (n_features,)

cdef class Codes:
    cdef CodeView c
    cdef uint8_t[:, ::1] by_feature
    cdef uint8_t[:, ::1] by_record
    cdef uint8_t[:, ::1] scales     # the bytes of Scale

cdef void fill_sides(const CodeView *view, int32_t feature, float threshold, bint categorical,
                     bint missing_left, uint8_t *sides) noexcept nogil
