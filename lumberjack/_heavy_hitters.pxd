"""The heavy-hitter search: shared structs and the interface that a hierarchy implements."""

from libc.stdint cimport int32_t, int64_t, uint64_t, uint32_t

cdef enum Status:
    OK = 0
    OUT_OF_MEMORY = 1
    NO_RANDOMNESS = 2       # the source of random bits raised
    STOPPED = 3             # the caller asked to stop
    TOO_MANY_NODES = 4      # more than 2^31 - 1 nodes

cdef struct SearchNode:
    uint64_t path           # hash of the path from the root; keys the split and seeded noise
    int32_t start           # the records of the node are records[start:end]
    int32_t end
    int32_t first_child     # index of the first child, the others follow; -1: not expanded
    int32_t n_children
    int32_t feature         # the split, as the hierarchy's `expand` wrote it
    float threshold
    uint32_t flags
    bint heavy

cdef struct Frame:
    double saved            # what the hierarchy's `leave` needs to undo its `enter`
    int64_t alarm_start     # the alarms of this node are alarms[alarm_start:alarm_end]
    int64_t alarm_end
    int32_t node
    int32_t height          # height of the search rooted here, 0: it only passes through
    int32_t target          # depth of the level under test
    int32_t below           # height of the searches that start below a heavy node of that level
    int32_t child           # the child being visited, -1 before the first
    int32_t written         # index of the node in the released tree, when that is written
    bint alarmed            # the alarms decide which nodes of the level pass

cdef struct Bits:
    bint seeded
    bint failed             # the source raised: whatever was drawn since is void
    uint64_t test_key       # seeded: one key for each purpose
    uint64_t alarm_key
    uint64_t thin_key
    uint64_t keep_key
    uint64_t stream         # seeded: the stream of the node at hand, and how much it gave
    uint64_t counter
    void *source            # borrowed reference to the Python source, when not seeded
    int32_t used            # how much of the block is used up
    uint64_t block[512]

cdef struct Search

# Splits `nodes[node]` into children (appended with `append_children`) and orders its records
# accordingly. False: it has none, or `status` was set.
ctypedef bint (*expand_t)(Search *search, int32_t node) noexcept nogil
# Moves the path state into a child; returns what `leave` needs to come back.
ctypedef double (*enter_t)(Search *search, int32_t node, int32_t child) noexcept nogil
ctypedef void (*leave_t)(Search *search, int32_t node, int32_t child, double saved) noexcept nogil
# The number of the child that holds a record.
ctypedef int32_t (*child_of_t)(Search *search, int32_t node, int32_t record) noexcept nogil

cdef struct Search:
    int32_t n_records
    int32_t *records        # a permutation of the records; every node owns a range
    int32_t *scratch        # n_records, for the partition
    const int32_t *ids      # while a hierarchy has numbered the records at hand anew: their own

    SearchNode *nodes       # heavy nodes, their children, and the path being visited
    int32_t n_nodes
    int32_t capacity

    const uint64_t *thresholds      # heavy iff 64 random bits < thresholds[count]
    const double *probabilities     # the same as a probability
    int32_t n_counts                # the last entry holds for all greater counts
    const double *hazards           # of lazy tests, by count; see `alarm_tables`
    const double *alarm_rates
    const double *kept
    bint lazy
    Bits bits

    void *hierarchy         # context of the four functions
    expand_t expand
    enter_t enter
    leave_t leave
    child_of_t child_of

    Frame *frames           # one for each level
    int32_t *alarms         # records that carry an alarm, a stack
    int64_t n_alarms
    int64_t alarm_capacity

    int32_t *test_counts    # tests that each record was in, or NULL; for the tests only
    const int32_t *stop     # not zero: give up, or NULL
    int status


cdef inline uint64_t mix64(uint64_t z) noexcept nogil:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014; constants: Stafford's variant 13)."""
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9U
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EBU
    return z ^ (z >> 31)


cdef inline uint64_t draw(uint64_t stream, uint64_t number) noexcept nogil:
    """Draw `number` (from 0) of a counter-based stream."""
    return mix64(stream + (number + 1) * <uint64_t>0x9E3779B97F4A7C15U)


cdef class TestTables:
    cdef const uint64_t[::1] thresholds
    cdef const double[::1] probabilities
    cdef const double[::1] hazards
    cdef const double[::1] alarm_rates
    cdef const double[::1] kept
    cdef void attach(self, Search *search) noexcept

cdef void open_bits(Bits *bits, object source)
cdef int open_search(Search *search, int32_t n_records, int32_t height) noexcept nogil
cdef void close_search(Search *search) noexcept nogil
cdef int32_t append_children(Search *search, int32_t node, int32_t n_children) noexcept nogil
cdef bint passes_test(Search *search, SearchNode *node) noexcept nogil
cdef void find_heavy(Search *search, int32_t height) noexcept nogil
