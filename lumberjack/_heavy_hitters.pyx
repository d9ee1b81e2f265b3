# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Heavy hitters of a hierarchy under differential privacy (Lumberjack, Algorithms 1 and 2).

`find_heavy` marks the heavy nodes of a tree of height h so that no record is in more than
1 + floor(log2 h) noisy tests: it tests the middle level, what passes makes its ancestors heavy,
what fails makes its descendants light, and the two halves are searched in the same way.

The tree is given by four functions (`expand`, `enter`, `leave`, `child_of`); nodes are made when
they are visited. Plain tests drop them again unless they turn out heavy, so that memory is
O(records + heavy nodes + height); lazy tests make few others and keep them.

Why lazy tests give the same distribution
-----------------------------------------
Most nodes below a light one would pass their test with a tiny probability; expanding them all to
find out costs most of the time. Let p(c) be the probability that a node with c records passes,
own(c) = -ln(1 - p(c)) / c, and h(c) the largest own(c') with c' <= c, which grows with c. Give
each record of a node with c records an alarm, independently, with probability
a(c) = 1 - exp(-h(c)). Going down, an alarm in a child with c' <= c records survives with
probability a(c')/a(c), so that the records of a node with c' records always carry independent
alarms of probability a(c'). In a node of the tested level with c records they survive once more,
with probability (1 - exp(-own(c)))/a(c), and the node passes iff any is left: that has
probability 1 - exp(-own(c))^c = p(c), and nodes of one level share no records, so the outcomes are
independent. This is the distribution of the plain tests. A node whose records carry no alarm has
no passing node of this level below it and need not be expanded.

A node has h(c) c alarms on average, little more than p(c), so that few are drawn in vain. Simply
giving each record an alarm with probability p(c), and letting the first record of a node decide,
draws c times as many. On Adult (30 trees, epsilon 1) the nodes expanded now hold 1.03 times the
records of the nodes that are split in the end; with alarms of p(c), rebuilding nodes in every
round, 2.0 times; with plain tests 3.1 times, in 460 times as many nodes.

The alarms are drawn by skips of the geometric law, floor(-ln(1 - V)/h), which is exact by
inversion. In finite precision the skip to position G is off by a relative error of a few G 2^-53;
restarting every ALARM_BLOCK records (the law has no memory) keeps it below 2^-42. Each thinning
adds a few 2^-53 to the relative error of the probability a(c), and hence to that of p(c) and, as
lazy tests are used only where h(c) c < 1/2, of 1 - p(c).
"""

from libc.math cimport log1p
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

import numpy as np

cdef enum:
    BLOCK_SIZE = 512            # words in Bits.block
    ALARM_BLOCK = 256           # records after which the skips start anew

# Alarms that a node has on average, at most, for lazy tests to be used.
cdef double MOST_ALARMS = 0.5
cdef double TWO_TO_MINUS_64 = 5.421010862427522e-20


def raise_status(int status, str no_memory):
    """Raise what a kernel could only note; `no_memory` says what to do when memory is short."""
    if status == OUT_OF_MEMORY:
        raise MemoryError(no_memory)
    if status == TOO_MANY_NODES:
        raise MemoryError("a tree has more nodes than fit in 32 bits; raise the threshold")
    if status == NO_RANDOMNESS:
        raise RuntimeError("the source of random bits failed; nothing was fitted")
    if status == STOPPED:
        raise KeyboardInterrupt


# Random bits --------------------------------------------------------------------------------

cdef void open_bits(Bits *bits, object source):
    """Prepare random bits from a source of `noise`; `source` must outlive them."""
    memset(bits, 0, sizeof(Bits))
    bits.source = <void *>source
    bits.used = BLOCK_SIZE
    bits.seeded = source.seeded
    if bits.seeded:
        bits.test_key = source.purpose_key("test")
        bits.alarm_key = source.purpose_key("alarm")
        bits.thin_key = source.purpose_key("thin")
        bits.keep_key = source.purpose_key("keep")


cdef void refill(Bits *bits) noexcept with gil:
    cdef const uint64_t[:, ::1] block
    try:
        block = (<object>bits.source).draw("search", np.zeros(1, dtype=np.uint64), BLOCK_SIZE)
        memcpy(bits.block, &block[0, 0], BLOCK_SIZE * sizeof(uint64_t))
    except BaseException:
        # The search is nogil and cannot raise: it stops, and its caller does.
        bits.failed = True
    bits.used = 0


cdef inline void aim(Bits *bits, uint64_t key, uint64_t path) noexcept nogil:
    """Seeded bits are a pure function of purpose and node: choose both."""
    bits.stream = mix64(key + mix64(path))
    bits.counter = 0


cdef inline uint64_t next_bits(Bits *bits) noexcept nogil:
    cdef uint64_t value
    if bits.seeded:
        value = draw(bits.stream, bits.counter)
        bits.counter += 1
        return value
    if bits.used == BLOCK_SIZE:
        refill(bits)
    value = bits.block[bits.used]
    bits.block[bits.used] = 0           # used noise does not stay in memory
    bits.used += 1
    return value


cdef inline double uniform(Bits *bits) noexcept nogil:
    """Uniform on [0, 1] with full relative precision down to 2^-76."""
    cdef uint64_t high = next_bits(bits)
    if high < 4096:
        return (<double>high + <double>next_bits(bits) * TWO_TO_MINUS_64) * TWO_TO_MINUS_64
    return <double>high * TWO_TO_MINUS_64


# Memory -------------------------------------------------------------------------------------

cdef int open_search(Search *search, int32_t n_records, int32_t height) noexcept nogil:
    """Allocate a search over `n_records` records; the root holds them all."""
    cdef int32_t i
    search.n_records = n_records
    search.capacity = 256
    search.alarm_capacity = 64
    search.records = <int32_t *>malloc(n_records * sizeof(int32_t))
    search.scratch = <int32_t *>malloc(n_records * sizeof(int32_t))
    search.nodes = <SearchNode *>malloc(search.capacity * sizeof(SearchNode))
    search.frames = <Frame *>malloc((height + 1) * sizeof(Frame))
    search.alarms = <int32_t *>malloc(search.alarm_capacity * sizeof(int32_t))
    search.ids = NULL
    search.n_nodes = 1
    search.n_alarms = 0
    search.status = OK
    if (search.records == NULL or search.scratch == NULL or search.nodes == NULL
            or search.frames == NULL or search.alarms == NULL):
        search.status = OUT_OF_MEMORY
        return search.status
    for i in range(n_records):
        search.records[i] = i
    memset(&search.nodes[0], 0, sizeof(SearchNode))
    search.nodes[0].end = n_records
    search.nodes[0].first_child = -1
    return search.status


cdef void close_search(Search *search) noexcept nogil:
    free(search.records)
    free(search.scratch)
    free(search.nodes)
    free(search.frames)
    free(search.alarms)


cdef int32_t append_children(Search *search, int32_t node, int32_t n_children) noexcept nogil:
    """Append unmarked, unexpanded children; -1 (and `status`) when there is no room."""
    cdef int64_t needed = <int64_t>search.n_nodes + n_children
    cdef int64_t capacity = search.capacity
    cdef int32_t first = search.n_nodes
    cdef int32_t i
    cdef SearchNode *grown
    if needed > capacity:
        capacity = max(needed, 2 * capacity)
        if capacity > 2147483647:
            capacity = 2147483647
        if needed > capacity:
            search.status = TOO_MANY_NODES
            return -1
        grown = <SearchNode *>realloc(search.nodes, capacity * sizeof(SearchNode))
        if grown == NULL:
            search.status = OUT_OF_MEMORY
            return -1
        search.nodes = grown
        search.capacity = <int32_t>capacity
    memset(&search.nodes[first], 0, n_children * sizeof(SearchNode))
    for i in range(n_children):
        search.nodes[first + i].first_child = -1
    search.nodes[node].first_child = first
    search.nodes[node].n_children = n_children
    search.n_nodes += n_children
    return first


cdef inline bint push_alarm(Search *search, int32_t record) noexcept nogil:
    cdef int32_t *grown
    if search.n_alarms == search.alarm_capacity:
        grown = <int32_t *>realloc(search.alarms, 2 * search.alarm_capacity * sizeof(int32_t))
        if grown == NULL:
            search.status = OUT_OF_MEMORY
            return False
        search.alarms = grown
        search.alarm_capacity *= 2
    search.alarms[search.n_alarms] = record
    search.n_alarms += 1
    return True


# Tests --------------------------------------------------------------------------------------

cdef inline int32_t count_of(Search *search, SearchNode *node) noexcept nogil:
    """The number of records as an index into the tables."""
    cdef int32_t count = node.end - node.start
    return count if count < search.n_counts else search.n_counts - 1


cdef inline int32_t record_at(Search *search, int32_t i) noexcept nogil:
    return search.records[i] if search.ids == NULL else search.ids[search.records[i]]


cdef void log_test(Search *search, SearchNode *node) noexcept nogil:
    cdef int32_t i
    if search.test_counts != NULL:
        for i in range(node.start, node.end):
            search.test_counts[record_at(search, i)] += 1


cdef bint passes_test(Search *search, SearchNode *node) noexcept nogil:
    """A plain test: count + N(0, sigma^2) >= threshold, as one comparison of integers."""
    cdef int32_t count = count_of(search, node)
    log_test(search, node)
    if search.thresholds[count] == 0:
        return False
    if search.probabilities[count] == 1.0:      # only without noise
        return True
    aim(&search.bits, search.bits.test_key, node.path)
    return next_bits(&search.bits) < search.thresholds[count]


def alarm_tables(probabilities):
    """The probabilities of alarms by the number of records, see the head of the module.

    Parameters
    ----------
    probabilities : float64 array
        The probability that a node passes, by count.

    Returns
    -------
    hazards, alarms, kept : float64 arrays
        h(c), a(c), and (1 - exp(-own(c)))/a(c).
    """
    counts = np.maximum(np.arange(len(probabilities)), 1)
    with np.errstate(divide="ignore"):
        own = -np.log1p(-np.asarray(probabilities)) / counts    # infinite where a test is sure
    hazards = np.maximum.accumulate(own)
    alarms = -np.expm1(-hazards)
    kept = np.divide(-np.expm1(-own), alarms, out=np.zeros_like(own), where=alarms > 0)
    return hazards, alarms, kept


cdef class TestTables:
    """All tables of the tests over counts; they must outlive the searches that read them.

    Parameters
    ----------
    thresholds, probabilities : uint64 and float64 arrays
        From `noise.test_table`.
    """

    def __init__(self, const uint64_t[::1] thresholds, const double[::1] probabilities):
        self.thresholds = thresholds
        self.probabilities = probabilities
        self.hazards, self.alarm_rates, self.kept = alarm_tables(probabilities)

    cdef void attach(self, Search *search) noexcept:
        search.thresholds = &self.thresholds[0]
        search.probabilities = &self.probabilities[0]
        search.n_counts = <int32_t>self.thresholds.shape[0]
        search.hazards = &self.hazards[0]
        search.alarm_rates = &self.alarm_rates[0]
        search.kept = &self.kept[0]


cdef void raise_alarms(Search *search, Frame *frame, SearchNode *node) noexcept nogil:
    """Give every record of the node an alarm with probability 1 - exp(-hazard)."""
    cdef double hazard = search.hazards[count_of(search, node)]
    cdef double skip
    cdef int32_t i = node.start
    cdef int32_t block_end
    log_test(search, node)
    frame.alarmed = True
    frame.alarm_start = search.n_alarms
    aim(&search.bits, search.bits.alarm_key + <uint64_t>frame.target, node.path)
    while i < node.end:
        block_end = i + ALARM_BLOCK if node.end - i > ALARM_BLOCK else node.end
        while i < block_end:
            skip = -log1p(-uniform(&search.bits)) / hazard
            if skip >= block_end - i:
                i = block_end
            else:
                i += <int32_t>skip
                if not push_alarm(search, record_at(search, i)):
                    return
                i += 1
    frame.alarm_end = search.n_alarms


cdef void thin_alarms(Search *search, Frame *frame, int32_t number, Frame *below) noexcept nogil:
    """The alarms that survive in child `number`: each with probability a(child)/a(parent)."""
    cdef SearchNode *node = &search.nodes[frame.node]
    cdef SearchNode *child = &search.nodes[node.first_child + number]
    cdef int32_t count = count_of(search, node)
    cdef int32_t child_count = count_of(search, child)
    cdef double ratio = search.alarm_rates[child_count] / search.alarm_rates[count]
    cdef int32_t record
    cdef int64_t i
    below.alarm_start = search.n_alarms
    aim(&search.bits, search.bits.thin_key + <uint64_t>frame.target, child.path)
    for i in range(frame.alarm_start, frame.alarm_end):
        record = search.alarms[i]
        if search.child_of(search, frame.node, record) != number:
            continue
        if child_count == count or uniform(&search.bits) < ratio:
            if not push_alarm(search, record):
                return
    below.alarm_end = search.n_alarms


cdef bint passes_alarmed(Search *search, Frame *frame, SearchNode *node) noexcept nogil:
    """The test of a node whose alarms are known: any that is kept."""
    cdef double kept = search.kept[count_of(search, node)]
    cdef int64_t _alarm
    aim(&search.bits, search.bits.keep_key, node.path)
    for _alarm in range(frame.alarm_start, frame.alarm_end):
        if kept == 1.0 or uniform(&search.bits) < kept:
            return True
    return False


# The search ---------------------------------------------------------------------------------

cdef inline void begin_round(Frame *frame, int32_t depth) noexcept nogil:
    """Aim the search rooted here at the middle of the levels it has left."""
    frame.target = depth + frame.height // 2
    frame.below = frame.height - frame.height // 2 - 1
    frame.child = -1
    frame.alarmed = False


cdef void mark_heavy(Search *search, int32_t depth) noexcept nogil:
    """The node at `depth` of the current path is heavy, and so are its ancestors."""
    cdef SearchNode *node
    while depth >= 0:
        node = &search.nodes[search.frames[depth].node]
        if node.heavy:
            return
        node.heavy = True
        depth -= 1


cdef bint visit(Search *search, int32_t depth) noexcept nogil:
    """Test the node at `depth` if it is of the tested level; True: its children come next."""
    cdef Frame *frame = &search.frames[depth]
    cdef SearchNode *node = &search.nodes[frame.node]
    cdef int32_t count
    cdef bint passed
    if depth == frame.target:
        if not node.heavy:
            if frame.alarmed:
                passed = passes_alarmed(search, frame, node)
            else:
                passed = passes_test(search, node)
            if not passed:
                return False
            mark_heavy(search, depth)
        if frame.below == 0:
            return False
    elif not node.heavy and not frame.alarmed:
        count = node.end - node.start
        if search.probabilities[count_of(search, node)] == 0.0:
            return False                # nothing below can pass either
        if search.lazy and count < search.n_counts and search.hazards[count] * count < MOST_ALARMS:
            raise_alarms(search, frame, node)
            if frame.alarm_start == frame.alarm_end:
                return False
    return node.first_child >= 0 or search.expand(search, frame.node)


cdef bint descend(Search *search, int32_t depth) noexcept nogil:
    """Open the frame of the child that `frames[depth]` points at; False: nothing to do there."""
    cdef Frame *frame = &search.frames[depth]
    cdef Frame *below = &search.frames[depth + 1]
    cdef SearchNode *node = &search.nodes[frame.node]
    cdef SearchNode *child = &search.nodes[node.first_child + frame.child]
    if child.start == child.end:
        return False
    below.node = node.first_child + frame.child
    below.alarm_start = search.n_alarms
    below.alarm_end = search.n_alarms
    if depth == frame.target:
        below.height = frame.below
        begin_round(below, depth + 1)
    else:
        below.height = 0
        below.target = frame.target
        below.below = frame.below
        below.child = -1
        below.alarmed = frame.alarmed
        if frame.alarmed:
            thin_alarms(search, frame, frame.child, below)
            if below.alarm_start == below.alarm_end:
                return False
    below.saved = search.enter(search, frame.node, frame.child)
    return True


cdef void find_heavy(Search *search, int32_t height) noexcept nogil:
    """Mark the heavy nodes among the levels 0..height-1 below the root, `nodes[0]`.

    An explicit stack replaces the recursion: `frames[d]` is the node at depth d of the current
    path, so the stack is never deeper than the height. A frame with height > 0 is the root of a
    search of its own; when its round is over it starts the next one on the upper half.
    """
    cdef int32_t depth = 0
    cdef Frame *frame = &search.frames[0]
    cdef SearchNode *node
    frame.node = 0
    frame.height = height
    frame.alarm_start = frame.alarm_end = 0
    begin_round(frame, 0)
    if search.n_records == 0:
        return
    while depth >= 0:
        frame = &search.frames[depth]
        if frame.child < 0:
            frame.child = 0 if visit(search, depth) else search.nodes[frame.node].n_children
        else:
            search.leave(search, frame.node, frame.child, search.frames[depth + 1].saved)
            frame.child += 1
        if search.bits.failed:
            search.status = NO_RANDOMNESS
        if search.status != OK:
            return
        while frame.child < search.nodes[frame.node].n_children and not descend(search, depth):
            frame.child += 1
        node = &search.nodes[frame.node]
        if frame.child < node.n_children:
            depth += 1
            continue
        search.n_alarms = frame.alarm_start
        if not search.lazy and not node.heavy and node.first_child >= 0:
            # Nothing below is heavy. A later round makes the same split again if it must: plain
            # tests expand too many nodes to keep them. Lazy ones do not.
            search.n_nodes = node.first_child
            node.first_child = -1
            node.n_children = 0
        if frame.height > 1:
            frame.height //= 2
            begin_round(frame, depth)
        else:
            depth -= 1
