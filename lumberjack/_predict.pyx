# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Traversal of a released forest."""

from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t

from lumberjack._tree cimport CATEGORICAL, MISSING_LEFT, Node

import numpy as np

# Rows that walk one tree before the next tree is taken: the tree then stays in the cache.
cdef int64_t BLOCK = 128


cdef inline int32_t find_leaf(const Node *nodes, const float *row) noexcept nogil:
    """Index of the leaf that a row falls into; the rule of `_tree.goes_left`."""
    cdef int32_t i = 0
    cdef float x
    cdef bint left
    while nodes[i].feature >= 0:
        x = row[nodes[i].feature]
        if nodes[i].flags & CATEGORICAL:
            left = x == nodes[i].threshold
        else:
            left = x <= nodes[i].threshold
        left |= (x != x) & ((nodes[i].flags & MISSING_LEFT) != 0)
        i = i + 1 if left else nodes[i].right
    return i


cdef void sum_block(const float[:, ::1] X, const Node *nodes, const int64_t[::1] tree_offsets,
                    const int64_t[::1] leaf_offsets, const double[:, ::1] leaf_values,
                    double[:, ::1] out, int64_t start, int64_t end) noexcept nogil:
    """Add the trees in their order, so that a row's sum does not depend on the other rows."""
    cdef Py_ssize_t n_classes = leaf_values.shape[1]
    cdef Py_ssize_t t, i, c
    cdef int64_t leaf
    cdef const Node *tree
    for t in range(tree_offsets.shape[0] - 1):
        tree = nodes + tree_offsets[t]
        for i in range(start, end):
            leaf = leaf_offsets[t] + tree[find_leaf(tree, &X[i, 0])].right
            for c in range(n_classes):
                out[i, c] += leaf_values[leaf, c]


def sum_votes(const float[:, ::1] X, nodes, const int64_t[::1] tree_offsets,
              const int64_t[::1] leaf_offsets, const double[:, ::1] leaf_values,
              int n_threads=1):
    """Sum over the trees of the values of the leaves that each row falls into.

    Parameters
    ----------
    X : float32 array of shape (n_rows, n_features)
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
    cdef int64_t n_blocks = (n_rows + BLOCK - 1) // BLOCK
    cdef int64_t b
    result = np.zeros((n_rows, leaf_values.shape[1]))
    cdef double[:, ::1] out = result
    for b in prange(n_blocks, nogil=True, num_threads=n_threads):
        sum_block(X, first, tree_offsets, leaf_offsets, leaf_values, out, b * BLOCK,
                  min((b + 1) * BLOCK, n_rows))
    return result


def apply(const float[:, ::1] X, nodes, const int64_t[::1] tree_offsets, int n_threads=1):
    """Index of the leaf in each tree that each row falls into.

    Parameters
    ----------
    X : float32 array of shape (n_rows, n_features)
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
    cdef Py_ssize_t n_trees = tree_offsets.shape[0] - 1
    cdef int64_t i
    cdef Py_ssize_t t
    result = np.zeros((n_rows, n_trees), dtype=np.int32)
    cdef int32_t[:, ::1] out = result
    for i in prange(n_rows, nogil=True, num_threads=n_threads):
        for t in range(n_trees):
            out[i, t] = find_leaf(first + tree_offsets[t], &X[i, 0])
    return result
