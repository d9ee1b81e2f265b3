# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Traversal of a released forest.

A row that walks down a tree alone waits at each node for the previous one: 8 ns a node. Blocks of
rows are therefore sent down together, as in the fit: each node parts its rows in one loop without
branches, 1 ns a row. Where few rows are left, they walk.
"""

from cython.parallel cimport prange
from libc.math cimport exp, log
from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.stdlib cimport free, malloc

from lumberjack._tree cimport CATEGORICAL, MISSING_LEFT, Node, partition

import numpy as np

cdef enum:
    BLOCK = 8192        # rows that go down a tree together
    FEW = 6             # rows that walk alone from where they are

# Where the rows of a right child end, while its left sibling is visited.
cdef struct Pending:
    int32_t node
    int32_t end

# A block of rows and what sending them down a tree takes.
cdef struct Block:
    int32_t n_rows
    int32_t stride              # from a feature to the next
    float *columns              # value (row, f) is columns[f * stride + row]
    uint16_t *rows              # numbers of the rows, those of a node side by side
    uint16_t *scratch
    int32_t *leaves             # per row: index of its leaf in the tree
    Pending *pending            # each holds a row at least: n_rows are enough


cdef bint open_block(Block *block, const float[:, :] X, int64_t start) noexcept nogil:
    """Copy the rows from `start` on, feature by feature; False: no memory."""
    cdef Py_ssize_t n_features = X.shape[1]
    cdef int32_t n_rows = <int32_t>min(BLOCK, X.shape[0] - start)
    cdef int32_t i
    cdef Py_ssize_t f
    block.n_rows = n_rows
    block.stride = n_rows + 16      # not a power of two, whose multiples fall on one cache set
    block.columns = <float *>malloc(n_features * block.stride * sizeof(float))
    block.rows = <uint16_t *>malloc(n_rows * sizeof(uint16_t))
    block.scratch = <uint16_t *>malloc(n_rows * sizeof(uint16_t))
    block.leaves = <int32_t *>malloc(n_rows * sizeof(int32_t))
    block.pending = <Pending *>malloc(n_rows * sizeof(Pending))
    if (block.columns == NULL or block.rows == NULL or block.scratch == NULL
            or block.leaves == NULL or block.pending == NULL):
        return False
    for f in range(n_features):
        for i in range(n_rows):
            block.columns[f * block.stride + i] = X[start + i, f]
    return True


cdef void close_block(Block *block) noexcept nogil:
    free(block.columns)
    free(block.rows)
    free(block.scratch)
    free(block.leaves)
    free(block.pending)


cdef inline int32_t find_leaf(const Node *nodes, int32_t i, const float *row,
                              int32_t stride) noexcept nogil:
    """Index of the leaf below node i that a row falls into; the rule of `_tree.goes_left`."""
    cdef float x
    cdef bint left
    while nodes[i].feature >= 0:
        x = row[<Py_ssize_t>nodes[i].feature * stride]
        if nodes[i].flags & CATEGORICAL:
            left = x == nodes[i].threshold
        else:
            left = x <= nodes[i].threshold
        left |= (x != x) & ((nodes[i].flags & MISSING_LEFT) != 0)
        i = i + 1 if left else nodes[i].right
    return i


cdef void find_leaves(Block *block, const Node *nodes) noexcept nogil:
    """Send the rows of a block down a tree, depth first: rows[start:end] are in node i."""
    cdef int32_t n_pending = 0
    cdef int32_t i = 0
    cdef int32_t start = 0
    cdef int32_t end = block.n_rows
    cdef int32_t middle, row
    for row in range(block.n_rows):
        block.rows[row] = row       # in order, for ascending reads of the columns
    while True:
        if nodes[i].feature >= 0 and end - start > FEW:
            middle = start + partition(
                &block.columns[<Py_ssize_t>nodes[i].feature * block.stride], &block.rows[start],
                end - start, block.scratch, nodes[i].threshold, nodes[i].flags
            )
            if middle == start:
                i = nodes[i].right
                continue
            if middle < end:
                block.pending[n_pending].node = nodes[i].right
                block.pending[n_pending].end = end
                n_pending += 1
                end = middle
            i += 1
            continue
        while start < end:
            row = block.rows[start]
            block.leaves[row] = find_leaf(nodes, i, &block.columns[row], block.stride)
            start += 1
        if n_pending == 0:
            return
        n_pending -= 1
        i = block.pending[n_pending].node
        end = block.pending[n_pending].end


cdef bint sum_block(const float[:, :] X, const Node *nodes, const int64_t[::1] tree_offsets,
                    const int64_t[::1] leaf_offsets, const double[:, ::1] leaf_values,
                    double[:, ::1] out, int64_t start) noexcept nogil:
    """Add the trees in their order, so that a row's sum does not depend on the other rows."""
    cdef Py_ssize_t n_classes = leaf_values.shape[1]
    cdef Py_ssize_t t, i, c
    cdef int64_t leaf
    cdef const Node *tree
    cdef Block block
    cdef bint opened = open_block(&block, X, start)
    if opened:
        for t in range(tree_offsets.shape[0] - 1):
            tree = nodes + tree_offsets[t]
            find_leaves(&block, tree)
            for i in range(block.n_rows):
                leaf = leaf_offsets[t] + tree[block.leaves[i]].right
                for c in range(n_classes):
                    out[start + i, c] += leaf_values[leaf, c]
    close_block(&block)
    return opened


cdef bint apply_block(const float[:, :] X, const Node *nodes, const int64_t[::1] tree_offsets,
                      int32_t[:, ::1] out, int64_t start) noexcept nogil:
    cdef Py_ssize_t t, i
    cdef Block block
    cdef bint opened = open_block(&block, X, start)
    if opened:
        for t in range(tree_offsets.shape[0] - 1):
            find_leaves(&block, nodes + tree_offsets[t])
            for i in range(block.n_rows):
                out[start + i, t] = block.leaves[i]
    close_block(&block)
    return opened


def sum_votes(const float[:, :] X, nodes, const int64_t[::1] tree_offsets,
              const int64_t[::1] leaf_offsets, const double[:, ::1] leaf_values,
              int n_threads=1):
    """Sum over the trees of the values of the leaves that each row falls into.

    Parameters
    ----------
    X : float32 array of shape (n_rows, n_features)
        Read faster by columns.
    nodes, tree_offsets, leaf_offsets
        The forest, as `grow_forest` returns it.
    leaf_values : float64 array of shape (n_leaves, n_values)
    n_threads : int

    Returns
    -------
    float64 array of shape (n_rows, n_values)
    """
    cdef const char[::1] node_bytes = nodes.view(np.int8)
    cdef const Node *first = <const Node *>&node_bytes[0]
    cdef int64_t n_rows = X.shape[0]
    cdef int64_t start
    cdef int failed = 0
    result = np.zeros((n_rows, leaf_values.shape[1]))
    cdef double[:, ::1] out = result
    for start in prange(0, n_rows, BLOCK, nogil=True, schedule="dynamic", num_threads=n_threads):
        failed += not sum_block(X, first, tree_offsets, leaf_offsets, leaf_values, out, start)
    if failed:
        raise MemoryError("no memory to predict")
    return result


def apply(const float[:, :] X, nodes, const int64_t[::1] tree_offsets, int n_threads=1):
    """Index of the leaf in each tree that each row falls into.

    Parameters
    ----------
    X : float32 array of shape (n_rows, n_features)
        Read faster by columns.
    nodes, tree_offsets
        The forest, as `grow_forest` returns it.
    n_threads : int

    Returns
    -------
    int32 array of shape (n_rows, n_trees)
    """
    cdef const char[::1] node_bytes = nodes.view(np.int8)
    cdef const Node *first = <const Node *>&node_bytes[0]
    cdef int64_t n_rows = X.shape[0]
    cdef int64_t start
    cdef int failed = 0
    result = np.zeros((n_rows, tree_offsets.shape[0] - 1), dtype=np.int32)
    cdef int32_t[:, ::1] out = result
    for start in prange(0, n_rows, BLOCK, nogil=True, schedule="dynamic", num_threads=n_threads):
        failed += not apply_block(X, first, tree_offsets, out, start)
    if failed:
        raise MemoryError("no memory to predict")
    return result


def to_probabilities(double[:, ::1] votes, const double[::1] prior,
                     const double[:, ::1] score=None, double score_vote=0.0,
                     double smallest=0.0, int n_threads=1):
    """Turn sums of votes into class probabilities, in place.

    A row without votes gets the prior. If there is a score, the result is the geometric mean of
    the two probabilities, forest^(1 - score_vote) score^score_vote, normalised, each of them
    `smallest` at least.

    Parameters
    ----------
    votes : float64 array of shape (n_rows, n_classes)
        Overwritten.
    prior : float64 array of shape (n_classes,)
    score : float64 array of shape (n_rows, n_scores), optional
        Probabilities by the score: of the second class, if `n_scores` is 1, else of all.
    score_vote : float
    smallest : float
        Above 0 if there is a score.
    n_threads : int
    """
    cdef Py_ssize_t n_rows = votes.shape[0]
    cdef Py_ssize_t start
    for start in prange(0, n_rows, BLOCK, nogil=True, num_threads=n_threads):
        normalise_block(votes, prior, start, min(start + BLOCK, n_rows))
        if score is not None:
            join_block(votes, score, score_vote, smallest, start, min(start + BLOCK, n_rows))


cdef void normalise_block(double[:, ::1] votes, const double[::1] prior, Py_ssize_t start,
                          Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i, c
    cdef double total
    for i in range(start, end):
        total = 0.0
        for c in range(votes.shape[1]):
            total += votes[i, c]
        for c in range(votes.shape[1]):
            votes[i, c] = votes[i, c] / total if total != 0 else prior[c]


cdef void join_block(double[:, ::1] votes, const double[:, ::1] score, double score_vote,
                     double smallest, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Relative to the first class: two logarithms and one exponential for each of the others."""
    cdef Py_ssize_t i, c
    cdef double first, first_score, own_score, total
    for i in range(start, end):
        first = max(votes[i, 0], smallest)
        first_score = max(score[i, 0] if score.shape[1] > 1 else 1 - score[i, 0], smallest)
        votes[i, 0] = total = 1.0
        for c in range(1, votes.shape[1]):
            own_score = max(score[i, c if score.shape[1] > 1 else 0], smallest)
            votes[i, c] = exp((1 - score_vote) * log(max(votes[i, c], smallest) / first)
                              + score_vote * log(own_score / first_score))
            total += votes[i, c]
        for c in range(votes.shape[1]):
            votes[i, c] /= total
