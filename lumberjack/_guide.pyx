# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Queries of the guide and the additive score, record by record.

Everything here goes through `cell_of` and `score_cells`, with a fixed order of operations for
each record, so that what a record contributes does not depend on any other record, on chunks,
memory order or threads. Sums are integers, so that their order does not matter either.
"""

from cython.parallel cimport prange
from libc.math cimport exp, fabs, floor
from libc.stdint cimport int32_t, int64_t

import numpy as np


# What a kernel needs to know of binning and score; a C view of Binning and Score.
cdef struct ScoreView:
    int32_t n_features
    int32_t n_scores
    const int32_t *n_categories     # per feature, 0: numeric
    const int64_t *edge_start       # numeric: its inner edges are edges[start:end]
    const float *edges
    const float *origin             # numeric: the bin of x is about 1 + (x - origin) * per_unit
    const float *per_unit
    const int64_t *cell_start       # cells of a feature: cell_start[f] .. cell_start[f + 1] - 1
    const double *tables            # (n_cells, n_scores)
    const double *intercepts        # (n_scores,)
    const int32_t *stop             # not zero: give up, or NULL


# Encoded records in either layout: value (i, f) is X[i * by_record + f * by_feature].
cdef struct Records:
    const float *X
    int64_t n
    int64_t by_record
    int64_t by_feature


cdef class Binning:
    """Cells of every feature: bins or categories, and one more for missing values.

    Parameters
    ----------
    n_categories : int32 array of shape (n_features,)
        0 for a numeric feature.
    inner_edges : list of float32 arrays
        For a numeric feature the increasing edges between its bins: bin b holds
        ``edges[b - 1] < x <= edges[b]``, the end bins everything beyond. Ignored for a categorical
        one.
    stop : int32 array of shape (1,), optional
        Set it to non-zero from another thread to make the queries give up; their sums are void
        then.

    Attributes
    ----------
    cell_start : int64 array of shape (n_features + 1,)
        The cells of feature f are ``cell_start[f]`` to ``cell_start[f + 1] - 1``, the last of them
        for missing values.
    n_cells : int
    """

    cdef ScoreView view
    cdef const int32_t[::1] n_categories
    cdef const int64_t[::1] edge_start
    cdef const float[::1] edges
    cdef const float[::1] origin
    cdef const float[::1] per_unit
    cdef const int64_t[::1] starts
    cdef const int32_t[::1] stop
    cdef readonly object cell_start
    cdef readonly int64_t n_cells

    def __init__(self, n_categories, inner_edges, const int32_t[::1] stop=None):
        n_features = len(n_categories)
        sizes = [
            int(n_categories[f]) + 1 if n_categories[f] else len(inner_edges[f]) + 2
            for f in range(n_features)
        ]
        used = [
            np.zeros(0, np.float32) if n_categories[f] else np.asarray(inner_edges[f], np.float32)
            for f in range(n_features)
        ]
        self.cell_start = np.cumsum([0] + sizes, dtype=np.int64)
        self.n_cells = sum(sizes)
        self.starts = self.cell_start
        self.n_categories = np.array(n_categories, dtype=np.int32)
        self.edge_start = np.cumsum([0] + [len(part) for part in used], dtype=np.int64)
        self.edges = np.concatenate(used + [np.zeros(1, np.float32)])
        self.origin, self.per_unit = np.float32([guess_bins(part) for part in used]).T.copy()
        self.view.n_features = n_features
        self.view.n_categories = &self.n_categories[0]
        self.view.edge_start = &self.edge_start[0]
        self.view.edges = &self.edges[0]
        self.view.origin = &self.origin[0]
        self.view.per_unit = &self.per_unit[0]
        self.view.cell_start = &self.starts[0]
        self.stop = stop
        self.view.stop = &stop[0] if stop is not None else NULL


cdef inline bint is_stopped(const ScoreView *view, int64_t i) noexcept nogil:
    """Whether to give up at record i; a look every few microseconds is enough."""
    return (i & 255) == 0 and view.stop != NULL and view.stop[0] != 0


def guess_bins(edges):
    """Origin and bins a unit of edges of equal distance, for a first guess of a value's bin."""
    width = float(edges[len(edges) - 1]) - float(edges[0]) if len(edges) > 1 else 0.0
    per_unit = (len(edges) - 1) / width if width > 0 else 0.0
    return (edges[0], per_unit) if 1e-37 < per_unit < 1e37 else (0.0, 0.0)


cdef inline int64_t cell_of(const ScoreView *view, int32_t feature, float x) noexcept nogil:
    """The cell of a value; -1 for an unknown category.

    Bins are equal, so that the guess is at most one off; the edges themselves decide.
    """
    cdef const float *edges
    cdef int32_t n_edges, passed
    cdef float guess
    if x != x:
        return view.cell_start[feature + 1] - 1
    if view.n_categories[feature] > 0:
        return view.cell_start[feature] + <int64_t>x if x >= 0 else -1
    edges = &view.edges[view.edge_start[feature]]
    n_edges = <int32_t>(view.edge_start[feature + 1] - view.edge_start[feature])
    guess = 1 + (x - view.origin[feature]) * view.per_unit[feature]
    guess = guess if guess > 0 else 0
    passed = <int32_t>(guess if guess < n_edges else n_edges)   # edges that lie below x
    while passed < n_edges and edges[passed] < x:
        passed += 1
    while passed > 0 and not edges[passed - 1] < x:
        passed -= 1
    return view.cell_start[feature] + passed


cdef inline void score_cells(const ScoreView *view, const int64_t *cells,
                             double *scores) noexcept nogil:
    """Scores of a record: intercept plus one table entry a feature, in the order of features."""
    cdef int32_t f, s
    for s in range(view.n_scores):
        scores[s] = view.intercepts[s]
    for f in range(view.n_features):
        if cells[f] >= 0:
            for s in range(view.n_scores):
                scores[s] += view.tables[cells[f] * view.n_scores + s]


cdef inline void score_record(const ScoreView *view, const Records *records, int64_t i,
                              int64_t *cells, double *scores) noexcept nogil:
    """The cells of a record, which take most of the time and can be used again, and its scores."""
    cdef int32_t f
    for f in range(view.n_features):
        cells[f] = cell_of(view, f, records.X[i * records.by_record + f * records.by_feature])
    score_cells(view, cells, scores)


cdef inline double sigmoid(double s) noexcept nogil:
    return 1.0 / (1.0 + exp(-s))


cdef inline void probabilities_of(const ScoreView *view, double *scores) noexcept nogil:
    """Turn scores into probabilities in place.

    A score is the log-odds of its class against the rest (one score: of class 1), so several
    classes share one in proportion to their sigmoids.
    """
    cdef double total = 0.0
    cdef int32_t s
    for s in range(view.n_scores):
        scores[s] = sigmoid(scores[s])
        total += scores[s]
    if view.n_scores > 1:
        for s in range(view.n_scores):
            # All of them below the smallest number: nothing is known, and 0/0 must not be.
            scores[s] = scores[s] / total if total > 0 else 1.0 / view.n_scores


cdef Records columns(const float[:, ::1] X):
    """Records of a matrix of shape (n_features, n_records)."""
    cdef Records records
    records.X = &X[0, 0] if X.shape[0] and X.shape[1] else NULL
    records.n = X.shape[1]
    records.by_record = 1
    records.by_feature = X.shape[1]
    return records


cdef Records rows(const float[:, ::1] X):
    """Records of a matrix of shape (n_records, n_features)."""
    cdef Records records
    records.X = &X[0, 0] if X.shape[0] and X.shape[1] else NULL
    records.n = X.shape[0]
    records.by_record = X.shape[1]
    records.by_feature = 1
    return records


cdef ScoreView bind(Binning binning, const double[:, ::1] tables, const double[::1] intercepts):
    cdef ScoreView view = binning.view
    view.n_scores = <int32_t>intercepts.shape[0]
    view.tables = &tables[0, 0]
    view.intercepts = &intercepts[0]
    return view


def per_thread(n_threads, n, dtype):
    """A zeroed row of `n` for each thread, and a gap: threads that share a line of memory wait."""
    return np.zeros((n_threads, n + 8), dtype=dtype)


# Labels: a class code, or a soft label in units, y of `unit` belonging to class 1.

def class_marginals(const float[:, ::1] X, const int32_t[::1] y, int n_classes, int unit,
                    Binning binning, int n_threads=1):
    """Class counts in the cells of every feature.

    One record adds `unit` to one cell of each feature (split between two classes when labels are
    soft), so the l2 sensitivity is at most ``unit * sqrt(n_features)``.

    Parameters
    ----------
    X : float32 array of shape (n_features, n_records)
    y : int32 array of shape (n_records,)
        Class codes; with ``unit > 1`` soft labels from 0 to `unit` (and two classes).
    n_classes, unit : int
    binning : Binning
    n_threads : int

    Returns
    -------
    int64 array of shape (n_cells, n_classes)
        Exact, and therefore private.
    """
    cdef Records records = columns(X)
    cdef ScoreView view = binning.view
    cdef int32_t f
    result = np.zeros((binning.n_cells, n_classes), dtype=np.int64)
    cdef int64_t[:, ::1] out = result
    for f in prange(view.n_features, nogil=True, num_threads=n_threads, schedule="dynamic"):
        count_feature(&view, &records, &y[0], f, unit, n_classes, &out[0, 0])
    return result


cdef void count_feature(const ScoreView *view, const Records *records, const int32_t *y,
                        int32_t feature, int unit, int n_classes, int64_t *out) noexcept nogil:
    cdef const float *column = records.X + feature * records.by_feature
    cdef int64_t i, cell
    for i in range(records.n):
        if is_stopped(view, i):
            return
        cell = cell_of(view, feature, column[i * records.by_record])
        if cell < 0:
            continue
        if unit == 1:
            out[cell * n_classes + y[i]] += 1
        else:
            out[cell * 2] += unit - y[i]
            out[cell * 2 + 1] += y[i]


def score_histogram(const float[:, ::1] X, const int32_t[::1] y, int unit, Binning binning,
                    const double[:, ::1] tables, const double[::1] intercepts, int n_cells,
                    double reach, int n_threads=1):
    """For each score the counts of its class against the rest over cells of the score.

    One record adds `unit` to one cell of each score, so the l2 sensitivity is at most
    ``unit * sqrt(n_scores)``.

    Parameters
    ----------
    X, y, unit, binning, n_threads
        As in `class_marginals`.
    tables : float64 array of shape (binning.n_cells, n_scores)
    intercepts : float64 array of shape (n_scores,)
    n_cells : int
        Equal cells of the score clipped to [-reach, reach].
    reach : float

    Returns
    -------
    int64 array of shape (n_scores, n_cells, 2)
        [..., 1] counts the class of the score (class 1 if there is one score), [..., 0] the rest.
    """
    cdef Records records = columns(X)
    cdef ScoreView view = bind(binning, tables, intercepts)
    cdef int64_t size = view.n_scores * n_cells * 2
    cdef int t
    parts = np.zeros((n_threads, size), dtype=np.int64)
    cdef int64_t[:, ::1] out = parts
    cdef int64_t[:, ::1] cells = per_thread(n_threads, view.n_features, np.int64)
    cdef double[:, ::1] scores = per_thread(n_threads, view.n_scores, np.float64)
    for t in prange(n_threads, nogil=True, num_threads=n_threads, schedule="static", chunksize=1):
        fill_score_histogram(&view, &records, &y[0], unit, n_cells, reach, t, n_threads,
                             &cells[t, 0], &scores[t, 0], &out[t, 0])
    return parts.sum(axis=0).reshape(view.n_scores, n_cells, 2)


cdef void fill_score_histogram(const ScoreView *view, const Records *records, const int32_t *y,
                               int unit, int n_cells, double reach, int part, int n_parts,
                               int64_t *cells, double *scores, int64_t *out) noexcept nogil:
    cdef int64_t start = records.n * part // n_parts
    cdef int64_t end = records.n * (part + 1) // n_parts
    cdef int64_t i, cell
    cdef int32_t s
    cdef double position
    for i in range(start, end):
        if is_stopped(view, i):
            return
        score_record(view, records, i, cells, scores)
        for s in range(view.n_scores):
            position = (scores[s] + reach) / (2 * reach) * n_cells
            cell = 0 if position < 0 else n_cells - 1 if position >= n_cells else <int64_t>position
            cell = (s * n_cells + cell) * 2
            if unit > 1:
                out[cell] += unit - y[i]
                out[cell + 1] += y[i]
            elif view.n_scores == 1:
                out[cell + y[i]] += 1
            else:
                out[cell + (y[i] == s)] += 1


def residual_sums(const float[:, ::1] X, const int32_t[::1] y, int unit, Binning binning,
                  const double[:, ::1] tables, const double[::1] intercepts, int steps,
                  int n_threads=1):
    """Sums of y - p(x) over the cells of every feature, in steps of 1/`steps`.

    Each record's residual is rounded to the nearest step. One score: |y - p| <= 1 and 1 is a
    multiple of the step, so the rounded residual is at most 1, too. Several scores: the norm is at
    most sqrt(2), and rounding adds at most half a step in each, sqrt(n_scores) / (2 steps) in all.

    Parameters
    ----------
    X, y, unit, binning, tables, intercepts, n_threads
        As in `score_histogram`.
    steps : int
        Steps of the grid in 1.

    Returns
    -------
    int64 array of shape (binning.n_cells, n_scores)
        Sums in steps; exact, and therefore private.
    """
    cdef Records records = columns(X)
    cdef ScoreView view = bind(binning, tables, intercepts)
    cdef int t
    parts = np.zeros((n_threads, binning.n_cells, view.n_scores), dtype=np.int64)
    cdef int64_t[:, :, ::1] out = parts
    cdef int64_t[:, ::1] cells = per_thread(n_threads, view.n_features, np.int64)
    cdef double[:, ::1] scores = per_thread(n_threads, view.n_scores, np.float64)
    cdef int64_t[:, ::1] rounded = per_thread(n_threads, view.n_scores, np.int64)
    for t in prange(n_threads, nogil=True, num_threads=n_threads, schedule="static", chunksize=1):
        fill_residual_sums(&view, &records, &y[0], unit, steps, t, n_threads, &cells[t, 0],
                           &scores[t, 0], &rounded[t, 0], &out[t, 0, 0])
    return parts.sum(axis=0)


cdef void fill_residual_sums(const ScoreView *view, const Records *records, const int32_t *y,
                             int unit, int steps, int part, int n_parts, int64_t *cells,
                             double *scores, int64_t *rounded, int64_t *out) noexcept nogil:
    cdef int64_t start = records.n * part // n_parts
    cdef int64_t end = records.n * (part + 1) // n_parts
    cdef int64_t i
    cdef int32_t s, f
    cdef double label
    for i in range(start, end):
        if is_stopped(view, i):
            return
        score_record(view, records, i, cells, scores)
        probabilities_of(view, scores)
        for s in range(view.n_scores):
            if view.n_scores == 1:
                label = <double>y[i] / unit
            else:
                label = y[i] == s
            rounded[s] = <int64_t>floor((label - scores[s]) * steps + 0.5)
        for f in range(view.n_features):
            if cells[f] >= 0:
                for s in range(view.n_scores):
                    out[cells[f] * view.n_scores + s] += rounded[s]


def curvature_sums(const float[:, ::1] X, Binning binning, const double[:, ::1] tables,
                   const double[::1] intercepts, const double[:, ::1] direction, double reach,
                   int steps, int n_threads=1):
    """Sums of p (1 - p) d^2 over the records, d the change of score along `direction`.

    With |d| clipped to `reach`, p (1 - p) d^2 is at most reach^2 / 4 = 1 unit; it is rounded to
    1/`steps` units. One score: a record adds at most 1 unit. Several: each adds at most 1 unit and
    all together at most 4 sum of p (1 - p) <= 4, so the norm is at most 2; rounding adds at most
    sqrt(n_scores) / (2 steps).

    Parameters
    ----------
    X, binning, tables, intercepts, n_threads
        As in `score_histogram`.
    direction : float64 array of shape (binning.n_cells, n_scores)
    reach : float
    steps : int

    Returns
    -------
    int64 array of shape (n_scores,)
        Sums in 1/`steps` units of reach^2 / 4; exact, and therefore private.
    """
    cdef Records records = columns(X)
    cdef ScoreView view = bind(binning, tables, intercepts)
    cdef const double[::1] zeros = np.zeros(view.n_scores)
    cdef ScoreView change = bind(binning, direction, zeros)
    cdef int t
    parts = per_thread(n_threads, view.n_scores, np.int64)
    cdef int64_t[:, ::1] out = parts
    cdef int64_t[:, ::1] cells = per_thread(n_threads, view.n_features, np.int64)
    cdef double[:, ::1] scores = per_thread(n_threads, 2 * view.n_scores, np.float64)
    for t in prange(n_threads, nogil=True, num_threads=n_threads, schedule="static", chunksize=1):
        fill_curvature_sums(&view, &change, &records, reach, steps, t, n_threads, &cells[t, 0],
                            &scores[t, 0], &out[t, 0])
    return parts[:, :view.n_scores].sum(axis=0)


cdef void fill_curvature_sums(const ScoreView *view, const ScoreView *change,
                              const Records *records, double reach, int steps, int part,
                              int n_parts, int64_t *cells, double *scores,
                              int64_t *out) noexcept nogil:
    cdef int64_t start = records.n * part // n_parts
    cdef int64_t end = records.n * (part + 1) // n_parts
    cdef double *changes = scores + view.n_scores
    cdef double d
    cdef int64_t i
    cdef int32_t s
    for i in range(start, end):
        if is_stopped(view, i):
            return
        score_record(view, records, i, cells, scores)
        probabilities_of(view, scores)
        score_cells(change, cells, changes)
        for s in range(view.n_scores):
            d = min(fabs(changes[s]), reach) / reach
            out[s] += <int64_t>floor(4 * scores[s] * (1 - scores[s]) * d * d * steps + 0.5)


def evaluate_score(const float[:, ::1] X, bint by_rows, Binning binning,
                   const double[:, ::1] tables, const double[::1] intercepts,
                   const double[::1] centres, float[:, ::1] z, double[:, ::1] probabilities=None,
                   int n_threads=1):
    """Write the score columns z = (sigmoid(s) + sigmoid(s - centre)) / 2, one a score.

    Parameters
    ----------
    X : float32 array
        Of shape (n_records, n_features) if `by_rows`, else (n_features, n_records); it may have
        more columns than the score uses.
    by_rows : bool
    binning, tables, intercepts, n_threads
        As in `score_histogram`.
    centres : float64 array of shape (n_scores,)
    z : float32 array
        Receives the columns: of shape (n_records, n_scores) if `by_rows`, else
        (n_scores, n_records).
    probabilities : float64 array of shape (n_records, n_scores), optional
        Receives the probabilities of the score.
    """
    cdef Records records = rows(X) if by_rows else columns(X)
    cdef ScoreView view = bind(binning, tables, intercepts)
    cdef double *p = &probabilities[0, 0] if probabilities is not None and records.n else NULL
    cdef int64_t[:, ::1] cells = per_thread(n_threads, view.n_features, np.int64)
    cdef double[:, ::1] scores = per_thread(n_threads, view.n_scores, np.float64)
    cdef int t
    if records.n == 0:
        return
    for t in prange(n_threads, nogil=True, num_threads=n_threads, schedule="static", chunksize=1):
        fill_score(&view, &records, &centres[0], by_rows, t, n_threads, &cells[t, 0],
                   &scores[t, 0], &z[0, 0], p)


cdef void fill_score(const ScoreView *view, const Records *records, const double *centres,
                     bint by_rows, int part, int n_parts, int64_t *cells, double *scores, float *z,
                     double *p) noexcept nogil:
    cdef int64_t start = records.n * part // n_parts
    cdef int64_t end = records.n * (part + 1) // n_parts
    cdef int64_t i, target
    cdef int32_t s
    for i in range(start, end):
        if is_stopped(view, i):
            return
        score_record(view, records, i, cells, scores)
        for s in range(view.n_scores):
            target = i * view.n_scores + s if by_rows else s * records.n + i
            z[target] = <float>(0.5 * (sigmoid(scores[s]) + sigmoid(scores[s] - centres[s])))
        if p != NULL:
            probabilities_of(view, scores)
            for s in range(view.n_scores):
                p[i * view.n_scores + s] = scores[s]
