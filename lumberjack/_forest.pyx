# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Growing a forest: one tree after the other on each thread, and counting classes in leaves."""

from cython.parallel cimport prange
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from lumberjack._codes cimport Codes, CodeView
from lumberjack._heavy_hitters cimport (
    OK, OUT_OF_MEMORY, Search, SearchNode, TestTables, close_search, find_heavy, open_bits,
    open_search
)
from lumberjack._tree cimport (
    Node, RandomTree, SplitPlan, WrittenTree, attach_tree, close_tree, free_written, open_tree,
    root_path, write_tree
)

import numpy as np

from lumberjack._heavy_hitters import raise_status
from lumberjack._tree import NODE_DTYPE

# Cells of a table from which codes pay off; below, its columns fit the second-level cache.
COMPACT_FROM = 2**20

# One tree as it is grown; private until noise is added to its counts.
cdef struct GrownTree:
    WrittenTree written
    int64_t *leaf_counts        # (n_leaves, n_classes)
    uint64_t *leaf_paths        # (n_leaves,)
    int status


cdef int count_leaves(const Search *search, const int32_t *y, int32_t n_classes, int32_t unit,
                      GrownTree *out) noexcept nogil:
    """Count the classes in every leaf; soft labels (unit > 1) count as y of 1 and unit - y of 0."""
    cdef int32_t n_leaves = out.written.n_leaves
    cdef const SearchNode *node
    cdef int64_t *counts
    cdef int32_t leaf, i
    out.leaf_counts = <int64_t *>calloc(<size_t>n_leaves * n_classes, sizeof(int64_t))
    out.leaf_paths = <uint64_t *>calloc(n_leaves, sizeof(uint64_t))
    if out.leaf_counts == NULL or out.leaf_paths == NULL:
        return OUT_OF_MEMORY
    for leaf in range(n_leaves):
        node = &search.nodes[out.written.leaves[leaf]]
        counts = &out.leaf_counts[<int64_t>leaf * n_classes]
        out.leaf_paths[leaf] = node.path
        for i in range(node.start, node.end):
            if unit == 1:
                counts[y[search.records[i]]] += 1
            else:
                counts[0] += unit - y[search.records[i]]
                counts[1] += y[search.records[i]]
    return OK


cdef void grow_tree(Search search, const float *X, const CodeView *codes, const int32_t *y,
                    int32_t n_records, int32_t n_classes, int32_t unit, SplitPlan plan,
                    int32_t max_depth, uint64_t path, GrownTree *out,
                    int32_t *test_counts) noexcept nogil:
    """Grow one tree. `search` comes by value, with tables and bits set: each tree has its own."""
    cdef RandomTree tree
    search.test_counts = test_counts
    memset(&tree, 0, sizeof(RandomTree))
    out.status = open_search(&search, n_records, max_depth)
    if out.status == OK:
        out.status = open_tree(&tree, &plan.c, X, n_records, codes)
    if out.status == OK:
        search.nodes[0].path = path
        attach_tree(&search, &tree)
        find_heavy(&search, max_depth)
        out.status = search.status
    if out.status == OK:
        out.status = write_tree(&search, &out.written)
    if out.status == OK:
        out.status = count_leaves(&search, y, n_classes, unit, out)
    close_tree(&tree)
    close_search(&search)


def grow_forest(const float[:, ::1] X, const int32_t[::1] y, int32_t n_classes, SplitPlan plan,
                int32_t max_depth, const uint64_t[::1] thresholds,
                const double[::1] probabilities, uint64_t split_seed, int32_t n_estimators, bits,
                int32_t unit=1, bint lazy=True, compact=None, bint overwrite_X=False,
                int n_threads=1, const int32_t[::1] stop=None, int8_t[::1] done=None,
                int32_t[:, ::1] test_counts=None):
    """Grow a forest of random trees, pruned by the private heavy-hitter search.

    Parameters
    ----------
    X : float32 array of shape (n_features, n_records)
        Encoded features, one after the other.
    y : int32 array of shape (n_records,)
        Class codes below `n_classes`; with ``unit > 1`` soft labels from 0 to `unit`, and two
        classes.
    n_classes : int
    plan : SplitPlan
    max_depth : int
        Levels of nodes that may be split, h.
    thresholds, probabilities : uint64 and float64 arrays
        Tables of the noisy test over counts, from `noise.test_table`.
    split_seed : int
        Public seed of the splits, 64 bits.
    n_estimators : int
    bits : SystemBits or SeededBits
        Source of the noise of the tests.
    unit : int
        What one record adds to the counts of its leaf.
    lazy : bool
        Lazy tests: the same distribution, far less work.
    compact : bool, optional
        Part the records by 8-bit codes (`_codes`): the same result. By default for tables with
        more than `COMPACT_FROM` cells.
    overwrite_X : bool
        Give memory of X back that is not needed any more; what X holds is undefined afterwards.
    n_threads : int
        Threads over trees; the result does not depend on it when `bits` is seeded.
    stop : int32 array of shape (1,), optional
        Set it to non-zero from another thread to give up.
    done : int8 array of shape (n_estimators,), optional
        Set to 1 tree by tree as they are grown, for another thread to watch.
    test_counts : int32 array of shape (n_estimators, n_records), optional
        Receives how many tests each record was in, for tests of the search.

    Returns
    -------
    nodes : array of NODE_DTYPE
        The nodes of all trees, tree after tree, each in depth-first order.
    tree_offsets : int64 array of shape (n_estimators + 1,)
        Tree t is ``nodes[tree_offsets[t]:tree_offsets[t + 1]]``.
    leaf_offsets : int64 array of shape (n_estimators + 1,)
        The same for the rows of `leaf_counts`.
    leaf_counts : int64 array of shape (n_leaves, n_classes)
        Exact, and therefore private, class counts.
    leaf_paths : uint64 array of shape (n_leaves,)
        Hash of the path to each leaf.

    Raises
    ------
    MemoryError
    KeyboardInterrupt
        `stop` was set.
    RuntimeError
        The source of randomness failed.
    """
    cdef int32_t n_records = <int32_t>X.shape[1]
    cdef int32_t t
    cdef Search search
    cdef const float *X_data = &X[0, 0] if n_records else NULL
    cdef const int32_t *y_data = &y[0] if n_records else NULL
    cdef TestTables tables = TestTables(thresholds, probabilities)
    cdef int[1] status              # an array, so that the threads share it
    cdef Codes codes
    cdef const CodeView *code_view = NULL
    status[0] = OK
    if compact is None:
        compact = X.shape[0] * X.shape[1] > COMPACT_FROM
    if compact and n_records:
        codes = Codes(X[:plan.n_features], plan.n_categories, n_threads, stop, overwrite_X)
        code_view = &codes.c
    cdef GrownTree *grown = <GrownTree *>calloc(n_estimators, sizeof(GrownTree))
    if grown == NULL:
        raise MemoryError("no memory for the trees")
    memset(&search, 0, sizeof(Search))
    tables.attach(&search)
    search.lazy = lazy
    search.stop = &stop[0] if stop is not None else NULL
    try:
        open_bits(&search.bits, bits)
        for t in prange(n_estimators, nogil=True, schedule="dynamic", chunksize=1,
                        num_threads=n_threads):
            if status[0] != OK:
                continue                # another tree failed, and the forest with it
            grow_tree(search, X_data, code_view, y_data, n_records, n_classes, unit, plan,
                      max_depth, root_path(split_seed, t), &grown[t],
                      &test_counts[t, 0] if test_counts is not None else NULL)
            if grown[t].status != OK:
                status[0] = grown[t].status
            if done is not None:
                done[t] = 1
        raise_status(
            status[0], "no memory to grow the trees; fit fewer trees at a time (n_jobs)"
        )
        return collect(grown, n_estimators, n_classes)
    finally:
        memset(&search.bits, 0, sizeof(search.bits))
        for t in range(n_estimators):
            free_written(&grown[t].written)
            free(grown[t].leaf_counts)
            free(grown[t].leaf_paths)
        free(grown)


cdef collect(const GrownTree *grown, int32_t n_estimators, int32_t n_classes):
    """Copy the trees into zeroed arrays of exact size."""
    tree_offsets = np.zeros(n_estimators + 1, dtype=np.int64)
    leaf_offsets = np.zeros(n_estimators + 1, dtype=np.int64)
    cdef int64_t[::1] node_ends = tree_offsets
    cdef int64_t[::1] leaf_ends = leaf_offsets
    cdef int32_t t
    for t in range(n_estimators):
        node_ends[t + 1] = node_ends[t] + grown[t].written.n_nodes
        leaf_ends[t + 1] = leaf_ends[t] + grown[t].written.n_leaves
    nodes = np.zeros(tree_offsets[n_estimators], dtype=NODE_DTYPE)
    leaf_counts = np.zeros((leaf_offsets[n_estimators], n_classes), dtype=np.int64)
    leaf_paths = np.zeros(leaf_offsets[n_estimators], dtype=np.uint64)
    cdef char[::1] nodes_data = nodes.view(np.int8)
    cdef int64_t[:, ::1] counts_data = leaf_counts
    cdef uint64_t[::1] paths_data = leaf_paths
    for t in range(n_estimators):
        memcpy(&nodes_data[node_ends[t] * sizeof(Node)], grown[t].written.nodes,
               grown[t].written.n_nodes * sizeof(Node))
        memcpy(&counts_data[leaf_ends[t], 0], grown[t].leaf_counts,
               <size_t>grown[t].written.n_leaves * n_classes * sizeof(int64_t))
        memcpy(&paths_data[leaf_ends[t]], grown[t].leaf_paths,
               grown[t].written.n_leaves * sizeof(uint64_t))
    return nodes, tree_offsets, leaf_offsets, leaf_counts, leaf_paths
