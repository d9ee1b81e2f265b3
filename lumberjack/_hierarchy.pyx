# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Hierarchies of paths for the heavy-hitter search.

The records are packed paths in sorted order, so that every node of the tree is a range of them.
To expand a node is to find where the next part of the path changes: the runs of equal parts lie
side by side, and each end is found by doubling steps and bisection. Nothing is moved, and the
records stay as they were sorted: record i of the search is path i.

A part of a path is a number of at most 32 bits within a word of 64; a path takes as many words as
its parts need. If paths can end early (`ragged`), the part 0 says that a path has ended: its record
counts in the nodes above and in none below.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lumberjack._heavy_hitters cimport (
    NO_RANDOMNESS, OK, OUT_OF_MEMORY, STOPPED, Search, SearchNode, TestTables, append_children,
    close_search, find_heavy, mix64, open_bits, open_search, passes_test
)

import numpy as np

from lumberjack._heavy_hitters import raise_status

NO_MEMORY = "no memory for the search: raise the threshold, or search fewer levels"

cdef uint64_t STEP = 0x9E3779B97F4A7C15U

cdef struct Paths:
    const uint64_t *words       # (n_words, n_records): the packed paths, sorted
    int64_t n_records
    int32_t n_levels
    const int32_t *word         # by level: the word that holds the part, how far it is shifted,
    const int32_t *shift        # and its bits
    const uint64_t *mask
    const int64_t *arities      # parts that there are, empty nodes included, or NULL: no such nodes
    const uint64_t *hashes      # public names of the parts, all levels, or NULL: the part itself
    const int64_t *first_hash   # by level
    bint ragged


# The hierarchy for the search -----------------------------------------------------------------

cdef inline uint64_t part_of(const Paths *paths, int32_t level, int32_t record) noexcept nogil:
    cdef uint64_t word = paths.words[paths.word[level] * paths.n_records + record]
    return (word >> paths.shift[level]) & paths.mask[level]


cdef int32_t end_of_run(const Paths *paths, int32_t level, int32_t start,
                        int32_t end) noexcept nogil:
    """The end of the run of records in [start, end) whose part is that of `start`."""
    cdef uint64_t part = part_of(paths, level, start)
    cdef int64_t step = 1
    cdef int64_t low = start            # of the run
    cdef int64_t high = end             # not of the run
    cdef int64_t middle
    if part_of(paths, level, end - 1) == part:
        return end
    while low + step < high and part_of(paths, level, <int32_t>(low + step)) == part:
        low += step
        step *= 2
    high = min(low + step, high)
    while high - low > 1:
        middle = (low + high) // 2
        if part_of(paths, level, <int32_t>middle) == part:
            low = middle
        else:
            high = middle
    return <int32_t>high


cdef inline uint64_t child_path(const Paths *paths, uint64_t path, int32_t level,
                                uint64_t part) noexcept nogil:
    """Key of a child: of what is public about it alone, whatever the records are."""
    if paths.hashes != NULL:
        part = paths.hashes[paths.first_hash[level] + <int64_t>part]
    return mix64(path + (part + 1) * STEP)


cdef bint expand(Search *search, int32_t index) noexcept nogil:
    """Append a child for each part. Of a node `feature` is its depth and `flags` its last part."""
    cdef const Paths *paths = <const Paths *>search.hierarchy
    cdef int32_t level = search.nodes[index].feature
    cdef int32_t end = search.nodes[index].end
    cdef int32_t start, i, n_children, child
    cdef uint64_t parent_path = search.nodes[index].path
    cdef uint64_t part = 0
    cdef SearchNode *node
    if search.stop != NULL and search.stop[0] != 0:
        search.status = STOPPED
        return False
    if level == paths.n_levels:
        return False
    start = search.nodes[index].start
    if paths.ragged and start < end and part_of(paths, level, start) == 0:
        start = end_of_run(paths, level, start, end)
    if paths.arities != NULL:
        n_children = <int32_t>paths.arities[level]
    else:
        n_children = 0
        i = start
        while i < end:
            i = end_of_run(paths, level, i, end)
            n_children += 1
    if n_children == 0:
        return False
    child = append_children(search, index, n_children)
    if child < 0:
        return False
    for child in range(child, child + n_children):
        if paths.arities == NULL:
            part = part_of(paths, level, start)
        node = &search.nodes[child]
        node.start = node.end = start
        if start < end and part_of(paths, level, start) == part:
            node.end = end_of_run(paths, level, start, end)
        node.path = child_path(paths, parent_path, level, part)
        node.feature = level + 1
        node.flags = <uint32_t>part
        start = node.end
        part += 1
    return True


cdef double enter(Search *search, int32_t index, int32_t child) noexcept nogil:
    return 0.0


cdef void leave(Search *search, int32_t index, int32_t child, double saved) noexcept nogil:
    pass


cdef int32_t child_of(Search *search, int32_t index, int32_t record) noexcept nogil:
    """The child whose range holds the record, by bisection; -1 if its path ends here."""
    cdef const SearchNode *first = &search.nodes[search.nodes[index].first_child]
    cdef int32_t low = 0
    cdef int32_t high = search.nodes[index].n_children
    cdef int32_t middle
    if record < first.start:
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        if first[middle].start <= record:
            low = middle
        else:
            high = middle
    return low


# The baseline -----------------------------------------------------------------------------------

cdef void find_heavy_top_down(Search *search) noexcept nogil:
    """Mark the heavy nodes level by level: test the children of every heavy node.

    Children are appended, so that the nodes themselves are the queue.
    """
    cdef int32_t index = 0
    cdef int32_t child, first
    while index < search.n_nodes:
        if search.nodes[index].heavy and expand(search, index):
            first = search.nodes[index].first_child
            for child in range(first, first + search.nodes[index].n_children):
                search.nodes[child].heavy = passes_test(search, &search.nodes[child])
        if search.bits.failed:
            search.status = NO_RANDOMNESS
        if search.status != OK:
            return
        index += 1


# Writing the result -------------------------------------------------------------------------------

cdef int32_t count_heavy(const Search *search) noexcept nogil:
    cdef int32_t i
    cdef int32_t n_heavy = 0
    for i in range(search.n_nodes):
        n_heavy += search.nodes[i].heavy
    return n_heavy


cdef int write_heavy(const Search *search, int32_t n_heavy, int32_t[::1] depths,
                     int32_t[::1] parents, int64_t[::1] parts, int64_t[::1] residuals,
                     uint64_t[::1] paths) noexcept nogil:
    """Write the heavy nodes depth-first, children in the order of their parts."""
    cdef int32_t *stack = <int32_t *>malloc(2 * n_heavy * sizeof(int32_t))
    cdef int32_t *above = stack + n_heavy       # row of the parent of each node on the stack
    cdef int32_t height = 1
    cdef int32_t row = 0
    cdef int32_t child, first
    cdef const SearchNode *node
    if stack == NULL:
        return OUT_OF_MEMORY
    stack[0] = 0
    above[0] = -1
    while height > 0:
        height -= 1
        node = &search.nodes[stack[height]]
        depths[row] = node.feature
        parents[row] = above[height]
        parts[row] = node.flags
        residuals[row] = node.end - node.start
        paths[row] = node.path
        if row:
            residuals[parents[row]] -= residuals[row]
        first = node.first_child
        for child in range(first + node.n_children - 1, first - 1, -1):
            if first >= 0 and search.nodes[child].heavy:
                stack[height] = child
                above[height] = row
                height += 1
        row += 1
    free(stack)
    return OK


def search_hierarchy(const uint64_t[:, ::1] words, layout, const uint64_t[::1] thresholds,
                     const double[::1] probabilities, bits, *, bint top_down=False,
                     const int64_t[::1] arities=None, bint lazy=True,
                     const int32_t[::1] stop=None, int32_t[::1] test_counts=None):
    """Find the heavy nodes of a hierarchy of paths.

    The root, which holds all records, is heavy without a test.

    Parameters
    ----------
    words : uint64 array of shape (n_words, n_records)
        Packed paths in lexicographic order.
    layout : Layout
        Where the parts lie in the words (`hierarchy.Layout`).
    thresholds, probabilities : uint64 and float64 arrays
        Tables of the noisy test over counts, from `noise.test_table`.
    bits : SystemBits or SeededBits
        Source of the noise of the tests.
    top_down : bool
        Test level by level instead: the baseline.
    arities : int64 array of shape (n_levels,), optional
        Test empty nodes, too; only with `top_down`.
    lazy : bool
        Lazy tests: the same distribution, far less work.
    stop : int32 array of shape (1,), optional
        Set it to non-zero from another thread to give up.
    test_counts : int32 array of shape (n_records,), optional
        Receives how many tests each record was in, for tests of the search.

    Returns
    -------
    depths, parents : int32 arrays of shape (n_heavy,)
        Depth-first, the root, whose parent is -1, first.
    parts : int64 array of shape (n_heavy,)
        The last part of each node's path.
    residuals : int64 array of shape (n_heavy,)
        Exact, and therefore private, numbers of records that are in no heavy child.
    paths : uint64 array of shape (n_heavy,)
        Hash of the path to each node.

    Raises
    ------
    MemoryError
    KeyboardInterrupt
        `stop` was set.
    RuntimeError
        The source of randomness failed.
    """
    cdef int32_t n_records = <int32_t>words.shape[1]
    cdef int32_t n_levels = layout.n_levels
    cdef const int32_t[::1] word = layout.word
    cdef const int32_t[::1] shift = layout.shift
    cdef const uint64_t[::1] mask = layout.mask
    cdef const uint64_t[::1] hashes = layout.hashes
    cdef const int64_t[::1] first_hash = layout.first_hash
    cdef TestTables tables = TestTables(thresholds, probabilities)
    cdef Search search
    cdef Paths paths
    memset(&paths, 0, sizeof(Paths))
    paths.words = &words[0, 0] if n_records else NULL
    paths.n_records = n_records
    paths.n_levels = n_levels
    paths.word = &word[0]
    paths.shift = &shift[0]
    paths.mask = &mask[0]
    paths.ragged = layout.ragged
    if hashes is not None and hashes.shape[0]:
        paths.hashes = &hashes[0]
        paths.first_hash = &first_hash[0]
    if arities is not None:
        paths.arities = &arities[0]
    memset(&search, 0, sizeof(Search))
    tables.attach(&search)
    search.lazy = lazy
    search.stop = &stop[0] if stop is not None else NULL
    search.test_counts = &test_counts[0] if test_counts is not None and n_records else NULL
    search.hierarchy = &paths
    search.expand = expand
    search.enter = enter
    search.leave = leave
    search.child_of = child_of
    try:
        open_bits(&search.bits, bits)
        with nogil:
            # The root is a level of the search, too, but marked beforehand, which costs no test. Of
            # h levels below it a record is in Q(h) <= 1 + floor(log2 h) tests: the first one is
            # on level (h + 1) // 2. A record that is in a heavy node there goes on below it, with
            # h // 2 levels; one in a light node with the (h + 1) // 2 - 1 levels above it and
            # the root. So Q(h) <= 1 + Q(h // 2), and Q(0) = 0.
            if open_search(&search, n_records, n_levels + 1) == OK:
                search.nodes[0].heavy = True
                if top_down:
                    find_heavy_top_down(&search)
                else:
                    find_heavy(&search, n_levels + 1)
        raise_status(search.status, NO_MEMORY)
        return collect(&search)
    finally:
        memset(&search.bits, 0, sizeof(search.bits))
        close_search(&search)


cdef collect(const Search *search):
    """The heavy nodes in zeroed arrays of exact size."""
    cdef int32_t n_heavy = count_heavy(search)
    depths, parents = (np.zeros(n_heavy, dtype=np.int32) for _ in range(2))
    parts, residuals = (np.zeros(n_heavy, dtype=np.int64) for _ in range(2))
    paths = np.zeros(n_heavy, dtype=np.uint64)
    raise_status(
        write_heavy(search, n_heavy, depths, parents, parts, residuals, paths), NO_MEMORY
    )
    return depths, parents, parts, residuals, paths
