"""Random trees: the released node, the split plan, and the hierarchy that the search walks."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from lumberjack._codes cimport CodeView
from lumberjack._heavy_hitters cimport Search

cdef enum:
    MISSING_LEFT = 1        # flag: missing values go to the left child
    CATEGORICAL = 2         # flag: the category `threshold` goes left, all others right

# A node of a released tree; NODE_DTYPE is its NumPy form. Nodes stand in depth-first order, so
# the left child is the next node.
cdef packed struct Node:
    int32_t feature         # feature of the split, -1: a leaf
    float threshold         # x <= threshold goes left; or the code of the category
    int32_t right           # index of the right child; of a leaf: its number in the tree
    uint32_t flags          # MISSING_LEFT, CATEGORICAL

# How splits are drawn; a C view of SplitPlan.
cdef struct Plan:
    int32_t n_features
    const int32_t *n_categories         # per feature, 0: numeric
    const float *lower                  # bounds of the numeric features
    const float *upper
    const double *feature_cumulative    # running sums of the feature weights
    const int64_t *edge_start           # numeric: edges[edge_start[f]:edge_start[f + 1]]
    const double *edges                 # bin edges of the threshold density
    const double *edge_mass             # its distribution function at the edges
    const int64_t *category_start       # categorical: offsets into category_cumulative
    const double *category_cumulative   # running sums of the category weights

cdef class SplitPlan:
    cdef Plan c
    cdef readonly int32_t n_features
    cdef const int32_t[::1] n_categories
    cdef const float[::1] lower
    cdef const float[::1] upper
    cdef const double[::1] feature_cumulative
    cdef const int64_t[::1] edge_start
    cdef const double[::1] edges
    cdef const double[::1] edge_mass
    cdef const int64_t[::1] category_start
    cdef const double[::1] category_cumulative

# The hierarchy of one random tree: the records and what is left to split in the current node.
cdef struct RandomTree:
    const Plan *plan
    const float *X          # (n_features, n_records), a feature after the other
    int64_t n_records
    const CodeView *codes   # the same as codes, or NULL
    int32_t local_node      # its records are numbered anew and their codes gathered; -1: none
    int32_t local_capacity
    int32_t *local_ids      # the record that a new number stands for
    uint8_t *local_codes    # (n_features, local_capacity)
    float *lower            # range of the current node per numeric feature
    float *upper
    int32_t *n_open         # per categorical feature: categories that can still be split off
    uint8_t *used           # per category: split off on the path (offsets category_start)

# What numbers records: 32 bits in a fit, 16 bits in a block of rows that are predicted.
ctypedef fused record_t:
    int32_t
    uint16_t

cdef int32_t partition(const float *column, record_t *records, int32_t n, record_t *scratch,
                       float threshold, uint32_t flags) noexcept nogil
cdef uint64_t root_path(uint64_t split_seed, int64_t tree) noexcept nogil
cdef int open_tree(RandomTree *tree, const Plan *plan, const float *X, int64_t n_records,
                   const CodeView *codes) noexcept nogil
cdef void close_tree(RandomTree *tree) noexcept nogil
cdef void attach_tree(Search *search, RandomTree *tree) noexcept nogil

# A tree written from the marks of a search.
cdef struct WrittenTree:
    Node *nodes
    int32_t n_nodes
    int32_t *leaves         # per leaf its index in Search.nodes
    int32_t n_leaves
    int32_t capacity        # of nodes and leaves

cdef int write_tree(Search *search, WrittenTree *out) noexcept nogil
cdef void free_written(WrittenTree *out) noexcept nogil
