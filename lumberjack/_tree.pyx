# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Random trees: splits as a pure function of (seed, tree, path), and the partition of records.

A split is drawn by a counter-based generator keyed by a 64-bit hash of the path from the root,
so neither the order in which nodes are expanded nor the number of threads changes a tree.
Everything here but `partition` is independent of the data.
"""

from libc.math cimport nextafterf
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from lumberjack._codes cimport LEFT, UNCLEAR, CodeView, fill_sides
from lumberjack._heavy_hitters cimport (
    OK, OUT_OF_MEMORY, STOPPED, Frame, Search, SearchNode, append_children, draw, mix64
)

import numpy as np

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define LUMBERJACK_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define LUMBERJACK_PREFETCH(address) ((void)0)
    #endif
    """
    void prefetch "LUMBERJACK_PREFETCH"(const void *address) noexcept nogil

# How many records ahead a line of memory is asked for.
cdef enum:
    AHEAD = 16

NODE_VERSION = 1
NODE_DTYPE = np.dtype(
    [("feature", "<i4"), ("threshold", "<f4"), ("right", "<i4"), ("flags", "<u4")]
)

MISSING_LEFT_FLAG = MISSING_LEFT
CATEGORICAL_FLAG = CATEGORICAL

# How often a feature or category is drawn before the draw is restricted to those that are left;
# both forms have the same distribution, the first costs no pass over all of them.
cdef int MAX_TRIES = 16

# Codes that are gathered for a subtree: what a second-level cache holds.
cdef int32_t LOCAL_CELLS = 262144


# The split plan -----------------------------------------------------------------------------

cdef class SplitPlan:
    """How the splits of a forest are drawn; public, or post-processing of private sums.

    Parameters
    ----------
    n_categories : int32 array of shape (n_features,)
        Number of categories of each feature, 0 for a numeric one.
    lower, upper : float32 arrays of shape (n_features,)
        Bounds of the numeric features.
    feature_weights : float64 array of shape (n_features,), optional
        How likely each feature is to be split; equally likely by default.
    threshold_cdfs : list of (edges, cdf) or None per feature, optional
        Increasing bin edges from lower to upper and the distribution function of the thresholds
        there; uniform by default.
    category_weights : list of float64 arrays or None per feature, optional
        How likely each category is to be split off; equally likely by default.
    """

    def __init__(self, n_categories, lower, upper, feature_weights=None, threshold_cdfs=None,
                 category_weights=None):
        n_features = len(n_categories)
        if feature_weights is None:
            feature_weights = np.ones(n_features)
        threshold_cdfs = threshold_cdfs or [None] * n_features
        category_weights = category_weights or [None] * n_features
        edges, masses, sums = [], [], []
        for f in range(n_features):
            if n_categories[f]:
                weights = category_weights[f]
                sums.append(np.cumsum(np.ones(n_categories[f]) if weights is None else weights))
                edges.append([])
                masses.append([])
            else:
                cdf = threshold_cdfs[f]
                if cdf is None:
                    cdf = ([lower[f], upper[f]], [0.0, 1.0])
                edges.append(cdf[0])
                masses.append(cdf[1])
                sums.append([])
        self.n_features = n_features
        self.n_categories = np.array(n_categories, dtype=np.int32)
        self.lower = np.array(lower, dtype=np.float32)
        self.upper = np.array(upper, dtype=np.float32)
        self.feature_cumulative = np.cumsum(feature_weights, dtype=np.float64)
        self.edge_start = offsets(edges)
        self.edges = flat(edges)
        self.edge_mass = flat(masses)
        self.category_start = offsets(sums)
        self.category_cumulative = flat(sums)
        self.c.n_features = n_features
        self.c.n_categories = &self.n_categories[0]
        self.c.lower = &self.lower[0]
        self.c.upper = &self.upper[0]
        self.c.feature_cumulative = &self.feature_cumulative[0]
        self.c.edge_start = &self.edge_start[0]
        self.c.edges = &self.edges[0]
        self.c.edge_mass = &self.edge_mass[0]
        self.c.category_start = &self.category_start[0]
        self.c.category_cumulative = &self.category_cumulative[0]


def offsets(parts):
    """Where each of the concatenated parts starts, and the end of the last."""
    return np.cumsum([0] + [len(part) for part in parts], dtype=np.int64)


def flat(parts):
    """The concatenated parts as float64; one spare element, so that it has an address."""
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts] + [[0.0]])


# Drawing a split ----------------------------------------------------------------------------

cdef struct Draws:
    uint64_t stream
    uint64_t number


cdef uint64_t root_path(uint64_t split_seed, int64_t tree) noexcept nogil:
    return mix64(mix64(split_seed) + <uint64_t>(tree + 1) * <uint64_t>0x9E3779B97F4A7C15U)


cdef inline uint64_t child_path(uint64_t path, int32_t child) noexcept nogil:
    if child == 0:
        return mix64(path + <uint64_t>0xA0761D6478BD642FU)
    return mix64(path + <uint64_t>0xE7037ED1A0B428DBU)


cdef inline uint64_t next_draw(Draws *draws) noexcept nogil:
    draws.number += 1
    return draw(draws.stream, draws.number - 1)


cdef inline double next_uniform(Draws *draws) noexcept nogil:
    """Uniform on [0, 1), 53 bits."""
    return <double>(next_draw(draws) >> 11) * 1.1102230246251565e-16


cdef inline int32_t first_above(const double *sums, int32_t n, double value) noexcept nogil:
    """First index with sums[index] > value, at most n - 1."""
    cdef int32_t low = 0
    cdef int32_t high = n - 1
    cdef int32_t middle
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


cdef inline double weight_at(const double *sums, int32_t i) noexcept nogil:
    return sums[i] - sums[i - 1] if i > 0 else sums[0]


cdef inline bint is_splittable(const RandomTree *tree, int32_t feature) noexcept nogil:
    if tree.plan.n_categories[feature] > 0:
        return tree.n_open[feature] >= 2
    return tree.lower[feature] < tree.upper[feature]


cdef int32_t draw_feature(const RandomTree *tree, Draws *draws) noexcept nogil:
    """A feature by weight among those that can still be split; -1: there is none."""
    cdef const double *sums = tree.plan.feature_cumulative
    cdef int32_t n = tree.plan.n_features
    cdef int32_t last = -1
    cdef int32_t i, _try
    cdef double total = 0.0
    cdef double target
    for _try in range(MAX_TRIES):
        last = first_above(sums, n, next_uniform(draws) * sums[n - 1])
        if is_splittable(tree, last):
            return last
    last = -1
    for i in range(n):
        if is_splittable(tree, i):
            total += weight_at(sums, i)
            last = i
    if last < 0:
        return -1
    target = next_uniform(draws) * total
    total = 0.0
    for i in range(n):
        if is_splittable(tree, i):
            total += weight_at(sums, i)
            if total > target:
                return i
    return last


cdef int32_t draw_category(const RandomTree *tree, int32_t feature, Draws *draws) noexcept nogil:
    """A category by weight among those not yet split off on the path."""
    cdef int64_t start = tree.plan.category_start[feature]
    cdef const double *sums = &tree.plan.category_cumulative[start]
    cdef const uint8_t *used = &tree.used[start]
    cdef int32_t n = tree.plan.n_categories[feature]
    cdef int32_t last = 0
    cdef int32_t i, _try
    cdef double total = 0.0
    cdef double target
    for _try in range(MAX_TRIES):
        last = first_above(sums, n, next_uniform(draws) * sums[n - 1])
        if not used[last]:
            return last
    for i in range(n):
        if not used[i]:
            total += weight_at(sums, i)
            last = i
    target = next_uniform(draws) * total
    total = 0.0
    for i in range(n):
        if not used[i]:
            total += weight_at(sums, i)
            if total > target:
                return i
    return last


cdef float draw_threshold(const RandomTree *tree, int32_t feature, Draws *draws) noexcept nogil:
    """A threshold in [lower, upper) of the node by inverting the density's distribution function.

    The distribution function is linear inside a bin. Where the range lies in one bin it is
    inverted directly, which keeps full precision in a small range.
    """
    cdef int64_t start = tree.plan.edge_start[feature]
    cdef const double *edges = &tree.plan.edges[start]
    cdef const double *mass = &tree.plan.edge_mass[start]
    cdef int32_t n_bins = <int32_t>(tree.plan.edge_start[feature + 1] - start) - 1
    cdef double low = tree.lower[feature]
    cdef double high = tree.upper[feature]
    cdef double u = next_uniform(draws)
    cdef int32_t low_bin = first_above(edges + 1, n_bins, low)
    cdef int32_t high_bin = first_above(edges + 1, n_bins, high)
    cdef double low_mass, high_mass, value
    cdef float threshold
    cdef int32_t b
    if low_bin < high_bin:
        low_mass = mass_at(edges, mass, low_bin, low)
        high_mass = mass_at(edges, mass, high_bin, high)
        value = low_mass + u * (high_mass - low_mass)
        b = first_above(mass + 1, n_bins, value)
        if b > high_bin:
            b = high_bin
        value = edges[b] + ((value - mass[b]) / (mass[b + 1] - mass[b])) * (edges[b + 1] - edges[b])
    else:
        value = low + u * (high - low)
    threshold = <float>value
    if threshold >= tree.upper[feature]:
        threshold = nextafterf(tree.upper[feature], tree.lower[feature])
    if not threshold >= tree.lower[feature]:
        threshold = tree.lower[feature]
    return threshold


cdef inline double mass_at(const double *edges, const double *mass, int32_t b,
                           double x) noexcept nogil:
    return mass[b] + (x - edges[b]) / (edges[b + 1] - edges[b]) * (mass[b + 1] - mass[b])


cdef bint choose_split(const RandomTree *tree, SearchNode *node) noexcept nogil:
    """Draw the split of a node; False: nothing in it can be split."""
    cdef Draws draws
    draws.stream = mix64(node.path ^ <uint64_t>0x8EBC6AF09C88C6E3U)
    draws.number = 0
    node.flags = MISSING_LEFT if next_draw(&draws) >> 63 else 0
    node.feature = draw_feature(tree, &draws)
    if node.feature < 0:
        return False
    if tree.plan.n_categories[node.feature] > 0:
        node.flags |= CATEGORICAL
        node.threshold = <float>draw_category(tree, node.feature, &draws)
    else:
        node.threshold = draw_threshold(tree, node.feature, &draws)
    return True


# Sending records to children ------------------------------------------------------------------

cdef inline bint goes_left(float x, float threshold, bint categorical,
                           bint missing_left) noexcept nogil:
    """NaN fails every comparison, so that `missing_left` chooses how to ask; no branch on x."""
    if categorical:
        return not ((x < threshold) | (x > threshold)) if missing_left else x == threshold
    return not x > threshold if missing_left else x <= threshold


cdef inline int32_t partition_by(const float *column, record_t *records, int32_t n,
                                 record_t *scratch, float threshold, bint categorical,
                                 bint missing_left) noexcept nogil:
    """Order n records, left ones first, each side in its old order; returns how many go left."""
    cdef Py_ssize_t n_left = 0      # as wide as a pointer: no conversions in the loop
    cdef Py_ssize_t i
    cdef record_t record
    for i in range(n):
        record = records[i]
        records[n_left] = record
        scratch[i - n_left] = record
        n_left += goes_left(column[record], threshold, categorical, missing_left)
    memcpy(&records[n_left], scratch, (n - n_left) * sizeof(record_t))
    return <int32_t>n_left


cdef int32_t partition(const float *column, record_t *records, int32_t n, record_t *scratch,
                       float threshold, uint32_t flags) noexcept nogil:
    """Order n records by a split, left ones first; returns how many go left.

    This is where a fit spends its time: 90 % on Adult (perf). The loop has no branch on the data,
    because a random split is not predictable, and one instance for each kind of split, so that a
    record costs one comparison and 12 instructions (0.9 ns instead of 1.3 ns with both flags
    read in the loop). Keeping the order keeps the reads of the column ascending in memory. A table
    that does not fit the cache is parted by codes instead, `part_records`.
    """
    if flags & CATEGORICAL:
        if flags & MISSING_LEFT:
            return partition_by(column, records, n, scratch, threshold, True, True)
        return partition_by(column, records, n, scratch, threshold, True, False)
    if flags & MISSING_LEFT:
        return partition_by(column, records, n, scratch, threshold, False, True)
    return partition_by(column, records, n, scratch, threshold, False, False)


cdef inline int32_t partition_by_code(const uint8_t *codes, const uint8_t *sides,
                                      const float *column, const int32_t *ids, int32_t *records,
                                      int32_t n, int32_t *scratch, float threshold,
                                      bint categorical) noexcept nogil:
    """As `partition`, by the codes of the records; the values are those of `ids`, if given."""
    cdef Py_ssize_t n_left = 0
    cdef Py_ssize_t i
    cdef int32_t record
    cdef uint8_t side
    for i in range(n):
        if ids == NULL and i + AHEAD < n:
            prefetch(&codes[records[i + AHEAD]])
        record = records[i]
        records[n_left] = record
        scratch[i - n_left] = record
        side = sides[codes[record]]
        if side == UNCLEAR:
            side = goes_left(column[ids[record] if ids != NULL else record], threshold,
                             categorical, False)
        n_left += side
    memcpy(&records[n_left], scratch, (n - n_left) * sizeof(int32_t))
    return <int32_t>n_left


cdef void open_local(Search *search, int32_t index) noexcept nogil:
    """Number the records of a node anew and gather their codes, for all that is below it."""
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef SearchNode *node = &search.nodes[index]
    cdef int32_t n_features = tree.codes.n_features
    cdef int32_t *records = &search.records[node.start]
    cdef const uint8_t *row
    cdef int32_t i, f
    cdef int32_t n = node.end - node.start
    for i in range(n):
        if i + AHEAD < n:
            row = tree.codes.by_record + <int64_t>records[i + AHEAD] * n_features
            prefetch(row)
            prefetch(row + n_features - 1)
        row = tree.codes.by_record + <int64_t>records[i] * n_features
        for f in range(n_features):
            tree.local_codes[<int64_t>f * tree.local_capacity + i] = row[f]
        tree.local_ids[i] = records[i]
        records[i] = i
    tree.local_node = index
    search.ids = tree.local_ids


cdef void close_local(Search *search) noexcept nogil:
    """Give the records of the node their own numbers again."""
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef SearchNode *node = &search.nodes[tree.local_node]
    cdef int32_t i
    for i in range(node.start, node.end):
        search.records[i] = tree.local_ids[search.records[i]]
    tree.local_node = -1
    search.ids = NULL


cdef int32_t part_records(Search *search, int32_t index) noexcept nogil:
    """Order the records of a node by its split, left ones first; returns how many go left.

    Records of a large node are far apart in memory. A read of a column takes a line from the
    third-level cache or beyond, and the loop would wait for each in turn, as its stores depend on
    it: lines are asked for ahead. Below, where the codes of all that a subtree needs fit the
    second-level cache, they are gathered once. With 10^6 records x 20 both together save more than
    half of the time of a fit (processor time 2.4 times less; without the prefetch nothing).
    """
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef SearchNode *node = &search.nodes[index]
    cdef int32_t n = node.end - node.start
    cdef int32_t *records = &search.records[node.start]
    cdef const float *column = &tree.X[node.feature * tree.n_records]
    cdef bint categorical = (node.flags & CATEGORICAL) != 0
    cdef uint8_t[256] sides
    if tree.codes == NULL:
        return partition(column, records, n, search.scratch, node.threshold, node.flags)
    fill_sides(tree.codes, node.feature, node.threshold, categorical,
               (node.flags & MISSING_LEFT) != 0, sides)
    if tree.local_node < 0 and n <= tree.local_capacity and index > 0:
        open_local(search, index)
    if tree.local_node < 0:
        return partition_by_code(
            tree.codes.by_feature + node.feature * tree.n_records, sides, column, NULL, records,
            n, search.scratch, node.threshold, categorical
        )
    return partition_by_code(
        tree.local_codes + <int64_t>node.feature * tree.local_capacity, sides, column,
        tree.local_ids, records, n, search.scratch, node.threshold, categorical
    )


# The hierarchy for the search -----------------------------------------------------------------

cdef int open_tree(RandomTree *tree, const Plan *plan, const float *X, int64_t n_records,
                   const CodeView *codes) noexcept nogil:
    """Allocate the path state and set it to the root."""
    cdef int32_t n_features = plan.n_features
    tree.plan = plan
    tree.X = X
    tree.n_records = n_records
    tree.codes = codes
    tree.local_node = -1
    tree.local_ids = NULL
    tree.local_codes = NULL
    tree.local_capacity = 0
    if codes != NULL and codes.by_record != NULL:
        tree.local_capacity = LOCAL_CELLS // n_features
        tree.local_ids = <int32_t *>malloc(tree.local_capacity * sizeof(int32_t))
        tree.local_codes = <uint8_t *>malloc(<size_t>tree.local_capacity * n_features)
        if tree.local_ids == NULL or tree.local_codes == NULL:
            return OUT_OF_MEMORY
    tree.lower = <float *>malloc(n_features * sizeof(float))
    tree.upper = <float *>malloc(n_features * sizeof(float))
    tree.n_open = <int32_t *>malloc(n_features * sizeof(int32_t))
    tree.used = <uint8_t *>calloc(plan.category_start[n_features] + 1, 1)
    if tree.lower == NULL or tree.upper == NULL or tree.n_open == NULL or tree.used == NULL:
        return OUT_OF_MEMORY
    memcpy(tree.lower, plan.lower, n_features * sizeof(float))
    memcpy(tree.upper, plan.upper, n_features * sizeof(float))
    memcpy(tree.n_open, plan.n_categories, n_features * sizeof(int32_t))
    return OK


cdef void close_tree(RandomTree *tree) noexcept nogil:
    free(tree.lower)
    free(tree.upper)
    free(tree.n_open)
    free(tree.used)
    free(tree.local_ids)
    free(tree.local_codes)


cdef bint expand(Search *search, int32_t index) noexcept nogil:
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef int32_t first, middle
    cdef SearchNode *node
    if search.stop != NULL and search.stop[0] != 0:
        search.status = STOPPED
        return False
    if not choose_split(tree, &search.nodes[index]):
        return False
    first = append_children(search, index, 2)
    if first < 0:
        return False
    node = &search.nodes[index]
    middle = node.start + part_records(search, index)
    search.nodes[first].start = node.start
    search.nodes[first].end = middle
    search.nodes[first].path = child_path(node.path, 0)
    search.nodes[first + 1].start = middle
    search.nodes[first + 1].end = node.end
    search.nodes[first + 1].path = child_path(node.path, 1)
    return True


cdef double enter(Search *search, int32_t index, int32_t child) noexcept nogil:
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef SearchNode *node = &search.nodes[index]
    cdef int32_t feature = node.feature
    cdef double saved
    if node.flags & CATEGORICAL:
        saved = tree.n_open[feature]
        if child == 0:
            tree.n_open[feature] = 1
        else:
            tree.n_open[feature] -= 1
            tree.used[tree.plan.category_start[feature] + <int64_t>node.threshold] = 1
    elif child == 0:
        saved = tree.upper[feature]
        tree.upper[feature] = node.threshold
    else:
        saved = tree.lower[feature]
        tree.lower[feature] = node.threshold
    return saved


cdef void leave(Search *search, int32_t index, int32_t child, double saved) noexcept nogil:
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef SearchNode *node = &search.nodes[index]
    cdef int32_t feature = node.feature
    if node.first_child + child == tree.local_node:
        close_local(search)
    if node.flags & CATEGORICAL:
        tree.n_open[feature] = <int32_t>saved
        if child == 1:
            tree.used[tree.plan.category_start[feature] + <int64_t>node.threshold] = 0
    elif child == 0:
        tree.upper[feature] = <float>saved
    else:
        tree.lower[feature] = <float>saved


cdef int32_t child_of(Search *search, int32_t index, int32_t record) noexcept nogil:
    cdef RandomTree *tree = <RandomTree *>search.hierarchy
    cdef SearchNode *node = &search.nodes[index]
    cdef int64_t place = node.feature * tree.n_records + record
    cdef bint categorical = (node.flags & CATEGORICAL) != 0
    cdef bint missing_left = (node.flags & MISSING_LEFT) != 0
    cdef uint8_t[256] sides
    if tree.codes != NULL:
        fill_sides(tree.codes, node.feature, node.threshold, categorical, missing_left, sides)
        if sides[tree.codes.by_feature[place]] != UNCLEAR:
            return sides[tree.codes.by_feature[place]] != LEFT
    return not goes_left(tree.X[place], node.threshold, categorical, missing_left)


cdef void attach_tree(Search *search, RandomTree *tree) noexcept nogil:
    """Let a search walk this tree."""
    search.hierarchy = tree
    search.expand = expand
    search.enter = enter
    search.leave = leave
    search.child_of = child_of


# Writing the tree ---------------------------------------------------------------------------

cdef void free_written(WrittenTree *out) noexcept nogil:
    free(out.nodes)
    free(out.leaves)


cdef bint reserve_node(WrittenTree *out) noexcept nogil:
    """Room for one node and one leaf more."""
    cdef int64_t capacity
    cdef Node *nodes
    cdef int32_t *leaves
    if out.n_nodes < out.capacity:
        return True
    capacity = min(2 * <int64_t>out.capacity + 64, <int64_t>2147483647)
    if out.n_nodes >= capacity:
        return False
    nodes = <Node *>realloc(out.nodes, capacity * sizeof(Node))
    if nodes == NULL:
        return False
    out.nodes = nodes
    leaves = <int32_t *>realloc(out.leaves, capacity * sizeof(int32_t))
    if leaves == NULL:
        return False
    out.leaves = leaves
    out.capacity = <int32_t>capacity
    return True


cdef int write_tree(Search *search, WrittenTree *out) noexcept nogil:
    """Write the tree depth-first from the marks alone: heavy nodes split, their children end.

    A heavy node that nothing can split is a leaf. Afterwards every leaf owns its range of
    `search.records`.
    """
    cdef int32_t depth = 0
    cdef Frame *frame
    cdef Node *written
    memset(out, 0, sizeof(WrittenTree))
    search.frames[0].node = 0
    search.frames[0].child = -1
    while depth >= 0 and search.status == OK:
        frame = &search.frames[depth]
        if frame.child < 0:
            if not reserve_node(out):
                search.status = OUT_OF_MEMORY
                break
            frame.written = out.n_nodes
            out.n_nodes += 1
            written = &out.nodes[frame.written]
            memset(written, 0, sizeof(Node))
            if not write_split(search, frame.node, written):
                written.feature = -1
                written.right = out.n_leaves
                out.leaves[out.n_leaves] = frame.node
                out.n_leaves += 1
                depth -= 1
                continue
        else:
            leave(search, frame.node, frame.child, frame.saved)
        frame.child += 1
        if frame.child == 2:
            depth -= 1
            continue
        if frame.child == 1:
            out.nodes[frame.written].right = out.n_nodes
        frame.saved = enter(search, frame.node, frame.child)
        search.frames[depth + 1].node = search.nodes[frame.node].first_child + frame.child
        search.frames[depth + 1].child = -1
        depth += 1
    trim(out)
    return search.status


cdef void trim(WrittenTree *out) noexcept nogil:
    """Give back what the arrays of a finished tree do not use: up to a half of them."""
    cdef void *smaller
    if out.n_nodes == 0:
        return
    smaller = realloc(out.nodes, out.n_nodes * sizeof(Node))
    if smaller != NULL:
        out.nodes = <Node *>smaller
        out.capacity = out.n_nodes


cdef bint write_split(Search *search, int32_t index, Node *written) noexcept nogil:
    """False: the node is a leaf."""
    cdef SearchNode *node = &search.nodes[index]
    if not node.heavy or (node.first_child < 0 and not expand(search, index)):
        return False
    node = &search.nodes[index]         # expand may have moved it
    written.feature = node.feature
    written.threshold = node.threshold
    written.flags = node.flags
    return True
