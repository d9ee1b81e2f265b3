"""Heavy hitters of hierarchical data: the prefixes that many records share.

`HierarchicalHeavyHitters` is the estimator. Each kind of paths (integer keys, arrays of digits,
parts of text or tuples) has a class below it that checks and packs them for the kernel and spells
the prefixes that are released.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lumberjack import _hierarchy, accounting, ledger, noise, privacy
from lumberjack.domain import PrivacyLeakWarning, warn_user
from lumberjack.frames import as_array, is_pandas
from lumberjack.parameters import check_choice, check_integer, check_real
from lumberjack.threads import run_interruptibly

__all__ = ["HierarchicalHeavyHitters"]

METHODS = ("binary_search", "top_down", "top_down_dense")

# The samplers' error analysis (accounting.hierarchy_precision) is for trees up to this deep.
MAX_HEIGHT = 1024

RESERVED = ("depth", "count", "count_std")  # columns of `to_frame` beside the levels

# Records and parts are numbered by 32 bits in the kernel.
MAX_RECORDS = 2**31 - 1
MAX_ARITY = 2**31 - 1

# Where empty prefixes are tested, a heavy path costs a node of 40 bytes for every part of a level.
MAX_DENSE_NODES = 2**25

SEEDED = (
    "random_state is given: the noise can be recomputed by anyone who knows it, so this result "
    "must not be published; use random_state=None for a release"
)


class HierarchicalHeavyHitters(ledger.LedgerPickling, BaseEstimator):
    """Prefixes of hierarchical data that many records share, found with differential privacy.

    A record is a path from general to special: the bits of a key, the digits of a code, the parts
    of a name or an address. Every prefix is a node of a tree, and the number of records below it
    its count. Released are the prefixes whose noisy count reaches a threshold, and their counts.
    The search tests the middle level of a tree first, as a binary search does: heavy nodes make
    their ancestors heavy and light ones their descendants light, so that a record is in
    ``1 + floor(log2(height))`` tests instead of one on every level.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter. Infinity means no noise and no privacy.
    delta : float, default=1e-6
        Privacy parameter, well below one over the number of records.
    threshold : float, default=None
        Records that a prefix needs to be heavy, tau. By default the least that privacy allows,
        ``records_per_unit + slack``. With a larger one, counts up to
        ``threshold - records_per_unit - slack`` are light without noise. With an infinite epsilon
        it must be given.
    height : int, default=None
        Levels that are searched; longer paths are cut. By default the bits of a key, or the
        columns of an array or frame. For text and tuples it must be given, as their length would
        otherwise be read from the records.
    bit_length : int, default=None
        The paths are integer keys of so many bits, 1 to 64, the highest bit first.
    arities : int or sequence of int, default=None
        The paths are arrays of digits ``0, ..., arity - 1``, with one arity for each level or for
        all.
    separator : str, default=None
        The paths are text, and this lies between the parts; ``""`` makes every character a part.
    alphabet : collection, or sequence of one collection a level, default=None
        The parts of text, tuples or columns that there can be. Not needed: a part that no record
        has is never visited. If given, other parts are an error.
    method : {"binary_search", "top_down", "top_down_dense"}, default="binary_search"
        The search, or a baseline to compare it with: "top_down" tests level by level, with noise
        sqrt(height / (2 rho)) instead of sqrt((1 + floor(log2 height)) / (2 rho)).
        "top_down_dense" tests empty prefixes, too, and so needs no slack; it needs `bit_length` or
        `arities` of at most 2^25 in all, and a `threshold`.
    count_share : float, default=0.25
        Share of the budget (of mu^2) for noisy counts; 0 releases none.
    records_per_unit : int, default=1
        Up to how many records belong to one protected unit, such as a person.
    random_state : int, RandomState instance or None, default=None
        None draws all noise from the operating system. Anything else makes the fit reproducible
        and voids the guarantee against anyone who knows it.
    ledger : PrivacyLedger or tuple of them, default=None
        Accounts that the fit is charged to before it reads a record, beside those of every active
        ``with PrivacyLedger(...)``. It refuses a fit that would overdraw.

    Attributes
    ----------
    heavy_ : list
        The heavy prefixes, depth-first in the order of their parts: a rooted subtree. The first
        is the root, the empty prefix, which holds all records and is always there. For integer
        keys a prefix is a pair (bits as a number, how many); for text it is text, else a tuple. As
        text the root and a first part that is empty look alike, ``""``: `depths_` tells them apart.
    depths_ : int32 array of shape (n_heavy,)
        Length of each prefix in levels.
    parents_ : int32 array of shape (n_heavy,)
        Position of each prefix's parent in `heavy_`; -1 for the root.
    counts_ : float64 array of shape (n_heavy,) or None
        Estimated counts, unbiased; they can be negative.
    counts_std_ : float64 array of shape (n_heavy,) or None
        Standard deviation of each count's noise, in records; it follows from the prefixes.
    level_names_ : tuple of str
        Names of the levels, for arrays, frames and tuples.
    height_ : int
        Levels that were searched.
    bit_length_ : int or None
        Bits of the keys.
    privacy_ : privacy.PrivacyReport
        The guarantee; ``print(model.privacy_)`` reads well.

    Notes
    -----
    The guarantee covers everything the fitted object holds under adding or removing one unit. As
    everywhere, errors about the paths themselves (a key that is too large, a part outside the
    alphabet) are for whoever holds them and lie outside of it; they never show a value.

    *Counts.* Let sigma be the noise of a single count for this share of the budget. Noise on the
    count of every heavy prefix has variance ``(1 + d) sigma^2``, d the largest depth found, as a
    record is in all counts on its path. Counting each record only at its deepest heavy prefix has
    sensitivity 1, and summing that up the tree gives a prefix ``(1 + m) sigma^2``, m the number of
    heavy prefixes below it: the best for the deepest ones, whose counts are smallest, and the worst
    at the top. Both are released, with a quarter and three quarters of the share, and joined by
    least squares: the variance is at most ``4/3 sigma^2`` at the deepest prefixes and at most
    ``4 (1 + d) sigma^2`` elsewhere, and on average over the prefixes of heavy-tailed 32-bit keys it
    is less than half of what the better one alone gives for the whole share. What the children
    leave of their parent's count estimates the records in none of them.

    References
    ----------
    "Lumberjack: Better Differentially Private Random Forests through Heavy Hitter Detection in
    Trees", section 4. `accounting.max_error` bounds the error.

    Examples
    --------
    >>> from lumberjack import HierarchicalHeavyHitters
    >>> visits = ["shop/books/crime"] * 900 + ["shop/music"] * 600 + ["blog/a"] * 3
    >>> model = HierarchicalHeavyHitters(1.0, 1e-6, separator="/", height=3).fit(visits)
    >>> model.heavy_
    ['', 'shop', 'shop/books', 'shop/books/crime', 'shop/music']
    >>> bool(abs(model.counts_[3] - 900) < 200)
    True

    Integer keys, here of 16 bits; 5 appears often:

    >>> keys = [5] * 500 + list(range(1000))
    >>> model = HierarchicalHeavyHitters(2.0, 1e-6, bit_length=16).fit(keys)
    >>> (5, 16) in model.heavy_
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        threshold: float | None = None,
        height: int | None = None,
        bit_length: int | None = None,
        arities: int | Sequence[int] | None = None,
        separator: str | None = None,
        alphabet: Collection | None = None,
        method: str = "binary_search",
        count_share: float = 0.25,
        records_per_unit: int = 1,
        random_state: int | np.random.RandomState | None = None,
        ledger: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.threshold = threshold
        self.height = height
        self.bit_length = bit_length
        self.arities = arities
        self.separator = separator
        self.alphabet = alphabet
        self.method = method
        self.count_share = count_share
        self.records_per_unit = records_per_unit
        self.random_state = random_state
        self.ledger = ledger

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.non_deterministic = self.random_state is None
        return tags

    def fit(self, paths: Any, y: None = None) -> HierarchicalHeavyHitters:
        """Find the heavy prefixes.

        Parameters
        ----------
        paths : array-like, frame or list
            One path a record: integers of shape (n_records,) with `bit_length`; integers of shape
            (n_records, n_levels) with `arities`; text with `separator`; or, with none of these, a
            frame or array whose columns are the levels, or tuples. Parts are text or integers. A
            path may be shorter than others; in a frame, an array or a tuple it ends at a missing
            part, so that there floats that are whole numbers stand for integers. Keys and text can
            be a frame of one column.
        y : None
            Ignored; here for scikit-learn.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            A parameter is wrong or missing, or the paths do not fit what was declared. These
            messages name parameters and levels, never a value; they go to whoever holds the data.
        PrivacyBudgetError
            A ledger has too little left for this fit (a ValueError, too).
        """
        self._check_parameters()
        paths = self._read_form(paths)
        kind = self._declare(paths)
        calibration = accounting.calibrate_hierarchy(
            self.epsilon,
            self.delta,
            height=kind.height,
            method=self.method,
            count_share=self.count_share,
            records_per_unit=self.records_per_unit,
            threshold=self.threshold,
        )
        arities = self._dense_arities(kind, calibration)
        _, bits = noise.derive_keys(self.random_state)
        report = privacy.make_report(calibration, (), bits)
        # Before the records are read, and not given back whatever happens: what is left then says
        # nothing about them.
        ledger.charge_fit(self.ledger, report, type(self).__name__)
        words, layout = kind.pack(paths, bits.seeded)
        if bits.seeded:
            warn_user(SEEDED, PrivacyLeakWarning)
        # Between here and the noise everything is private. Attributes are set only at the end, so
        # that a fit that fails or is interrupted leaves nothing half done.
        depths, parents, parts, residuals, keys = search(words, layout, calibration, arities, bits)
        counts = deviations = None
        sigma = calibration.sigma_counts
        if sigma is not None:
            counts, deviations = release_counts(residuals, depths, parents, keys, sigma, bits)
        fitted = {
            "heavy_": kind.spell(depths, parents, parts),
            "depths_": depths,
            "parents_": parents,
            "counts_": counts,
            "counts_std_": deviations,
            "level_names_": kind.names,
            "height_": kind.height,
            "bit_length_": kind.bit_length,
            "privacy_": report,
        }
        self.__dict__.update(fitted)
        return self

    def to_frame(self, backend: str = "pandas") -> Any:
        """The heavy prefixes as a table, in the order of `heavy_`.

        Parameters
        ----------
        backend : {"pandas", "polars"}, default="pandas"

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            For integer keys "prefix" (its bits as a number) and "low" and "high", the first and
            last key that have it; for text "prefix"; else one column for each level, missing below
            the end of the prefix. Then "depth", and "count" and "count_std" if there are counts.
            Integers that 64 bits do not hold are objects in pandas and text in polars, where text
            that is no valid Unicode is escaped; so are such names of columns.

        Raises
        ------
        ImportError
            The library, which is optional, is not installed.
        """
        check_is_fitted(self)
        check_choice("backend", backend, ("pandas", "polars"))
        try:
            library = importlib.import_module(backend)
        except ImportError:
            raise ImportError(
                f"to_frame needs {backend}: python -m pip install {backend}"
            ) from None
        columns = self._columns()
        columns["depth"] = self.depths_
        if self.counts_ is not None:
            columns["count"] = self.counts_
            columns["count_std"] = self.counts_std_
        convert = _for_pandas if backend == "pandas" else _for_polars
        return library.DataFrame(
            {_utf8(name): convert(own, library) for name, own in columns.items()}
        )

    def _columns(self) -> dict[str, Any]:
        """The columns that tell the prefixes."""
        if self.level_names_:
            depths = range(self.height_)
            return {
                name: [own[j] if len(own) > j else None for own in self.heavy_]
                for name, j in zip(self.level_names_, depths, strict=True)
            }
        bits = self.bit_length_
        if bits is None:
            return {"prefix": list(self.heavy_)}
        low = [prefix << (bits - depth) for prefix, depth in self.heavy_]
        high = [((prefix + 1) << (bits - depth)) - 1 for prefix, depth in self.heavy_]
        prefix = [prefix for prefix, _ in self.heavy_]
        columns = {"prefix": prefix, "low": low, "high": high}
        return {name: np.array(own, dtype=np.uint64) for name, own in columns.items()}

    def _check_parameters(self) -> None:
        check_real("epsilon", self.epsilon)
        check_real("delta", self.delta)
        check_real("count_share", self.count_share)
        check_choice("method", self.method, METHODS)
        check_integer("records_per_unit", self.records_per_unit, 1)
        if self.height is not None:
            check_integer("height", self.height, 1, MAX_HEIGHT)
        if self.threshold is not None:
            check_real("threshold", self.threshold)

    def _read_form(self, paths: Any) -> Any:
        """The paths in a form that the kinds read; refused is what has not one for each record."""
        if not _is_frame(paths):
            return _one_for_each_record(paths)
        _check_frame(paths)
        for name in ("bit_length", "separator"):
            if getattr(self, name) is not None:
                if len(paths.columns) != 1:
                    raise ValueError(
                        f"with {name} the paths are a single column, but the frame has "
                        f"{len(paths.columns)}: give the column that holds them"
                    )
                return _column_of(paths, 0)
        return paths

    def _declare(self, paths: Any) -> Keys | Digits | Parts:
        """The kind of the paths: what parameters and columns tell, no values."""
        kinds = ("bit_length", "arities", "separator")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {given[0]} and {given[1]}: each says what the paths are")
        if self.alphabet is not None and given in (["bit_length"], ["arities"]):
            raise ValueError(f"alphabet is for parts of text or tuples, not with {given[0]}")
        if self.bit_length is not None:
            return Keys(self.bit_length, self.height)
        if self.arities is not None:
            return Digits(self.arities, self.height, paths)
        if self.separator is not None:
            return Text(self.separator, self.height, self.alphabet)
        if _is_frame(paths) or (isinstance(paths, np.ndarray) and paths.ndim == 2):
            return Columns(paths, self.height, self.alphabet)
        return Tuples(self.height, self.alphabet)

    def _dense_arities(
        self, kind: Keys | Digits | Parts, calibration: accounting.HierarchyCalibration
    ) -> np.ndarray | None:
        """Arities by level if empty prefixes are tested, which must be few enough to pass."""
        if self.method != "top_down_dense" or calibration.sigma_tests == 0:
            return None
        if kind.arities is None:
            raise ValueError(
                'method="top_down_dense" tests empty prefixes, too: declare them by bit_length or '
                'arities, or use method="top_down"'
            )
        passing = float(ndtr(-calibration.threshold / calibration.sigma_tests))
        if passing * int(kind.arities.max()) >= 0.5:
            raise ValueError(
                "threshold is too low: more empty prefixes would pass on each level than on the "
                "one above; use a larger threshold"
            )
        if int(kind.arities.sum()) > MAX_DENSE_NODES:
            raise ValueError(
                'method="top_down_dense" makes a node for every empty prefix, too, and arities of '
                f'more than {MAX_DENSE_NODES} in all are too many for it: use method="top_down", '
                "or smaller arities"
            )
        return kind.arities


def search(
    words: np.ndarray,
    layout: Layout,
    calibration: accounting.HierarchyCalibration,
    arities: np.ndarray | None,
    bits: noise.SystemBits | noise.SeededBits,
) -> tuple[np.ndarray, ...]:
    """Run the kernel, interruptibly; what it returns is private but for the structure."""
    n_records = words.shape[1]
    if n_records > MAX_RECORDS:
        raise ValueError("there are too many paths: at most 2^31 - 1 can be searched")
    thresholds, probabilities = _test_table(calibration, n_records, dense=arities is not None)
    stop = np.zeros(1, dtype=np.int32)

    def work() -> tuple[np.ndarray, ...]:
        return _hierarchy.search_hierarchy(
            words,
            layout,
            thresholds,
            probabilities,
            bits,
            top_down=calibration.method != "binary_search",
            arities=arities,
            stop=stop,
        )

    return run_interruptibly(work, stop)


def _test_table(
    calibration: accounting.HierarchyCalibration, max_count: int, dense: bool
) -> tuple[np.ndarray, np.ndarray]:
    """`noise.test_table`; in a dense one empty nodes are tested like all others."""
    c = calibration
    if not dense:
        return noise.test_table(c.sigma_tests, c.threshold, c.slack, c.records_per_unit, max_count)
    # The entry of count 0 is always a sure failure: shifted by one, it is that of no count at all.
    thresholds, probabilities = noise.test_table(
        c.sigma_tests, c.threshold + 1, c.threshold, 1, max_count + 1
    )
    return thresholds[1:].copy(), probabilities[1:].copy()


def release_counts(
    residuals: np.ndarray,
    depths: np.ndarray,
    parents: np.ndarray,
    keys: np.ndarray,
    sigma: float,
    bits: noise.SystemBits | noise.SeededBits,
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy counts of the heavy nodes, from two queries that `accounting.count_noise` balances.

    Parameters
    ----------
    residuals : int64 array of shape (n_heavy,)
        Exact, private: the records of each node that are in no heavy child of it.
    depths, parents : int32 arrays of shape (n_heavy,)
        The released tree.
    keys : uint64 array of shape (n_heavy,)
        Hashes of the prefixes, which key seeded noise.
    sigma : float
        Noise of one count that is worth the same as both queries.
    bits : noise.SystemBits or noise.SeededBits

    Returns
    -------
    counts, deviations : float64 arrays of shape (n_heavy,)
        The estimates, and the standard deviations of their noise, in records.
    """
    words = bits.draw("counts", keys, 2)
    own_noise, residual_noise = accounting.count_noise(sigma, int(depths.max()))
    own = residuals.copy()
    for level in reversed(_by_depth(depths)[1:]):
        np.add.at(own, parents[level], own[level])
    own += noise.rounded_gaussian(words[:, 0], own_noise)
    residuals = residuals + noise.rounded_gaussian(words[:, 1], residual_noise)
    counts, deviations = combine_counts(own, residuals, depths, parents)
    return counts, sigma * deviations


def combine_counts(
    own: np.ndarray, residuals: np.ndarray, depths: np.ndarray, parents: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least-squares estimate of the counts of a tree from noisy counts and noisy residuals.

    Two passes, as in Hay, Rastogi, Miklau, Suciu (2010), "Boosting the accuracy of differentially
    private histograms through consistency": upwards each node joins its own count with the sum of
    what lies below it, by their variances; downwards it hands what it learnt to what lies below.

    Parameters
    ----------
    own, residuals : arrays of shape (n_heavy,)
        With noise in the proportion of `accounting.count_noise`.
    depths, parents : int32 arrays of shape (n_heavy,)

    Returns
    -------
    counts, deviations : float64 arrays of shape (n_heavy,)
        The estimates, and the standard deviations of their noise where that of a single count
        which is worth both queries is 1.

    Examples
    --------
    >>> depths, parents = np.array([0, 1, 1]), np.array([-1, 0, 0])
    >>> combine_counts(np.array([10, 5, 4]), np.array([1, 5, 4]), depths, parents)
    (array([10.,  5.,  4.]), array([1.57..., 1.01..., 1.01...]))
    """
    levels = _by_depth(depths)
    own_noise, residual_noise = accounting.count_noise(1.0, len(levels) - 1)
    below = residuals.astype(np.float64)
    variance_below = np.full(len(own), residual_noise**2)
    found, variance = np.empty(len(own)), np.empty(len(own))
    for level in reversed(levels):
        weight = variance_below[level] / (variance_below[level] + own_noise**2)
        found[level] = below[level] + weight * (own[level] - below[level])
        variance[level] = variance_below[level] * (1 - weight)
        if level[0]:  # not the root
            np.add.at(below, parents[level], found[level])
            np.add.at(variance_below, parents[level], variance[level])
    for level in levels[1:]:
        above = parents[level]
        gain = variance[level] / variance_below[above]
        found[level] += gain * (found[above] - below[above])
        variance[level] -= gain**2 * (variance_below[above] - variance[above])
    return found, np.sqrt(variance)


def _by_depth(depths: np.ndarray) -> list[np.ndarray]:
    """Positions of the nodes of each depth."""
    order = np.argsort(depths, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depths))[:-1])


# Kinds of paths -----------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Where the parts of a path lie in its words.

    Attributes
    ----------
    n_levels, n_words : int
    word, shift : int32 arrays of shape (n_levels,)
        Each part lies in the bits from ``shift`` of a word.
    mask : uint64 array of shape (n_levels,)
        The bits of a part, unshifted.
    ragged : bool
        Part 0 says that the path has ended.
    hashes : uint64 array
        Public names of the parts, level after level; empty where the parts are public numbers.
    first_hash : int64 array of shape (n_levels,)
        Where the names of a level start.
    """

    n_levels: int
    n_words: int
    word: np.ndarray
    shift: np.ndarray
    mask: np.ndarray
    ragged: bool
    hashes: np.ndarray
    first_hash: np.ndarray


def make_layout(
    widths: Sequence[int], ragged: bool = False, hashes: Sequence[np.ndarray] = ()
) -> Layout:
    """Lay out parts of so many bits, the first ones in the highest bits of the first word.

    Parameters
    ----------
    widths : sequence of int
        Bits of the parts, at most 32 each.
    ragged : bool
    hashes : sequence of uint64 arrays
        Public names of the parts, by level.

    Returns
    -------
    Layout

    Examples
    --------
    >>> layout = make_layout([30, 30, 8])
    >>> layout.word.tolist(), layout.shift.tolist(), layout.n_words
    ([0, 0, 1], [34, 4, 56], 2)
    """
    word, shift = [0], [64 - widths[0]]
    for width in widths[1:]:
        fits = shift[-1] >= width
        word.append(word[-1] + (not fits))
        shift.append(shift[-1] - width if fits else 64 - width)
    sizes = [len(own) for own in hashes] or [0]
    return Layout(
        n_levels=len(widths),
        n_words=word[-1] + 1,
        word=np.array(word, dtype=np.int32),
        shift=np.array(shift, dtype=np.int32),
        mask=np.array([(1 << width) - 1 for width in widths], dtype=np.uint64),
        ragged=ragged,
        hashes=np.concatenate(hashes) if len(hashes) else np.zeros(0, dtype=np.uint64),
        first_hash=np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.int64),
    )


def pack_columns(columns: Iterable[np.ndarray], n_records: int, layout: Layout) -> np.ndarray:
    """Pack the parts, given level by level, and sort the paths.

    Parameters
    ----------
    columns : iterable of integer arrays of shape (n_records,)
    n_records : int
    layout : Layout

    Returns
    -------
    uint64 array of shape (n_words, n_records)
    """
    words = np.zeros((layout.n_words, n_records), dtype=np.uint64)
    for column, word, shift in zip(columns, layout.word, layout.shift, strict=True):
        part = column.astype(np.uint64)
        part <<= np.uint64(shift)
        words[word] |= part
    return sort_words(words)


def sort_words(words: np.ndarray) -> np.ndarray:
    """Sort packed paths lexicographically, in place."""
    if len(words) == 1:
        words[0].sort()
        return words
    order = np.lexsort(words[::-1])
    for row in words:
        row[:] = row[order]
    return words


class Keys:
    """Integer keys of so many bits: a complete binary tree."""

    names: tuple[str, ...] = ()

    def __init__(self, bit_length: int, height: int | None) -> None:
        check_integer("bit_length", bit_length, 1, 64)
        self.bit_length = int(bit_length)
        self.height = _given_height(height, int(bit_length), "bits of a key")
        self.arities = np.full(self.height, 2, dtype=np.int64)

    def pack(self, paths: Any, seeded: bool) -> tuple[np.ndarray, Layout]:
        """Packed and sorted paths, and their layout."""
        keys, bits = _integer_array(paths, 1), self.bit_length
        if len(keys) and (keys.min() < 0 or keys.max() > (1 << bits) - 1):
            raise ValueError(
                f"keys must lie between 0 and 2^bit_length - 1, with bit_length={bits}: give a "
                "larger bit_length, or clip the keys"
            )
        words = np.array(keys, dtype=np.uint64, ndmin=2)
        words <<= np.uint64(64 - bits)
        return sort_words(words), make_layout([1] * self.height)

    def spell(self, depths: np.ndarray, parents: np.ndarray, parts: np.ndarray) -> list:
        """Prefixes from the parts at their ends."""
        found = [0]
        for parent, part in zip(parents[1:].tolist(), parts[1:].tolist(), strict=True):
            found.append(2 * found[parent] + part)
        return list(zip(found, depths.tolist(), strict=True))


class Digits:
    """Arrays of digits with public arities."""

    bit_length: int | None = None

    def __init__(self, arities: int | Sequence[int], height: int | None, paths: Any) -> None:
        shape = _integer_array(paths, 2).shape
        columns = shape[1] if len(shape) == 2 else None  # an empty list has none
        own = _read_arities(arities, height if columns is None else columns)
        if columns is not None and len(own) != columns:
            raise ValueError(
                f"arities tells of {len(own)} levels, but the array has {columns} columns"
            )
        self.height = _given_height(height, len(own), "levels")
        self.arities = np.array(own[: self.height], dtype=np.int64)
        self.names = _numbered(self.height)

    def pack(self, paths: Any, seeded: bool) -> tuple[np.ndarray, Layout]:
        """Packed and sorted paths, and their layout."""
        digits = _integer_array(paths, 2)
        layout = make_layout([max(1, int(arity - 1).bit_length()) for arity in self.arities])
        return pack_columns(self._checked_columns(digits), len(digits), layout), layout

    def _checked_columns(self, digits: np.ndarray) -> Iterator[np.ndarray]:
        for j, arity in enumerate(self.arities.tolist()):
            column = digits[:, j] if len(digits) else np.zeros(0, dtype=np.int64)
            if len(column) and (column.min() < 0 or column.max() >= arity):
                raise ValueError(
                    f"digits of {self.names[j]} must lie between 0 and arity - 1 = {arity - 1}: "
                    "give a larger arity, or clip the digits"
                )
            yield column

    def spell(self, depths: np.ndarray, parents: np.ndarray, parts: np.ndarray) -> list:
        """Prefixes from the parts at their ends."""
        return _spell_tuples(parents, parts.tolist())


class Parts:
    """Paths of parts that are text or integers: what text, tuples and columns share.

    The parts of each level are numbered in their order, from 1; 0 stands for the end of the path.
    The numbers depend on the records and are private; what is released is spelt in parts.
    """

    arities: np.ndarray | None = None
    bit_length: int | None = None
    names: tuple[str, ...] = ()

    def __init__(self, height: int, alphabet: Collection | None) -> None:
        self.height = height
        self.alphabet = _read_alphabet(alphabet, height)

    def pack(self, paths: Any, seeded: bool) -> tuple[np.ndarray, Layout]:
        """Packed and sorted paths, and their layout."""
        columns: list[np.ndarray] = []
        self._tables: list[list] = []
        for j, values in enumerate(self.columns(paths)):
            codes, table = _encode_parts(values, f"level {j + 1}", self.alphabet[j])
            if columns:
                codes[columns[-1] == 0] = 0  # after its end a path has no more parts
            columns.append(codes)
            self._tables.append(table)
        layout = make_layout(
            [max(1, len(table).bit_length()) for table in self._tables],
            ragged=True,
            hashes=[_public_names(table) for table in self._tables] if seeded else (),
        )
        return pack_columns(columns, len(columns[0]), layout), layout

    def columns(self, paths: Any) -> Iterator[Any]:
        """The parts of each level, one for each record, None after the end of its path."""
        raise NotImplementedError

    def spell(self, depths: np.ndarray, parents: np.ndarray, parts: np.ndarray) -> list:
        """Prefixes from the parts at their ends."""
        # Parts of text are copied, so that which objects the records shared leaves no trace.
        copies: dict[Any, Any] = {}
        ends = [None]
        for depth, part in zip(depths[1:].tolist(), parts[1:].tolist(), strict=True):
            end = self._tables[depth - 1][part - 1]
            ends.append(copies.setdefault(end, _copied(end)))
        return _spell_tuples(parents, ends)


class Tuples(Parts):
    """One tuple or list of parts for each record."""

    def __init__(self, height: int | None, alphabet: Collection | None) -> None:
        if height is None:
            raise ValueError(
                "the paths are taken for tuples, whose height must be given: how many levels of "
                "them are searched. Declare bit_length for integer keys, arities for an array of "
                "digits, separator for text"
            )
        super().__init__(height, alphabet)
        self.names = _numbered(height)

    def columns(self, paths: Any) -> Iterator[Any]:
        """The parts of each level, None after the end."""
        paths = self.split(paths)
        for j in range(self.height):
            yield [path[j] if len(path) > j else None for path in paths]

    def split(self, paths: Any) -> list:
        """The paths as a list of tuples or lists."""
        paths = list(paths)
        if not all(issubclass(kind, tuple | list | np.ndarray) for kind in set(map(type, paths))):
            raise TypeError(
                "paths must be tuples of parts; declare bit_length for integer keys, arities for "
                "an array of digits, separator for text"
            )
        arrays = (path for path in paths if isinstance(path, np.ndarray))
        if any(path.ndim != 1 or isinstance(path, np.ma.MaskedArray) for path in arrays):
            raise TypeError("paths that are arrays must have one dimension and no mask")
        return paths


class Text(Tuples):
    """One text for each record, whose parts a separator divides."""

    def __init__(self, separator: str, height: int | None, alphabet: Collection | None) -> None:
        if not isinstance(separator, str):
            raise TypeError(f"separator must be text, got {type(separator).__name__}")
        if height is None:
            raise ValueError("height must be given for text: how many levels are searched")
        super().__init__(height, alphabet)
        self.separator = separator
        self.names = ()

    def split(self, paths: Any) -> list:
        """The parts of every text; an empty one has none."""
        paths = list(paths)
        if not all(issubclass(kind, str) for kind in set(map(type, paths))):
            raise TypeError("paths must be text, none missing, as a separator is given")
        if not self.separator:
            return paths
        return [path.split(self.separator, self.height) if path else () for path in paths]

    def spell(self, depths: np.ndarray, parents: np.ndarray, parts: np.ndarray) -> list:
        """Prefixes as text."""
        return [self.separator.join(prefix) for prefix in super().spell(depths, parents, parts)]


class Columns(Parts):
    """A frame or array whose columns are the levels."""

    def __init__(self, paths: Any, height: int | None, alphabet: Collection | None) -> None:
        if _is_frame(paths):
            names = [str(name) for name in paths.columns]
            if len({*names, *RESERVED}) < len(names) + len(RESERVED):
                raise ValueError(
                    f"the names of the columns must differ from one another and from {RESERVED}, "
                    "which to_frame adds: rename them"
                )
        else:
            names = list(_numbered(paths.shape[1]))
        super().__init__(_given_height(height, len(names), "columns"), alphabet)
        self.names = tuple(names[: self.height])

    def columns(self, paths: Any) -> Iterator[Any]:
        """The parts of each level."""
        for j in range(self.height):
            yield _column_values(_column_of(paths, j)) if _is_frame(paths) else _whole(paths[:, j])


# Reading parts ------------------------------------------------------------------------------------


def _is_frame(paths: Any) -> bool:
    return hasattr(type(paths), "columns")


def _check_frame(paths: Any) -> None:
    if hasattr(type(paths), "collect"):
        raise TypeError("paths is a lazy frame: give paths.collect()")
    if not is_pandas(paths) and not hasattr(paths, "get_column"):
        raise TypeError(
            f"paths is a {type(paths).__name__}, which is not read: give a frame of pandas or "
            "polars, such as paths.to_pandas()"
        )


def _column_of(frame: Any, j: int) -> Any:
    return frame.iloc[:, j] if is_pandas(frame) else frame[frame.columns[j]]


def _column_values(column: Any) -> Any:
    """A column of a frame as an array of integers, or a list."""
    values = column.to_numpy()
    if values.dtype.kind in "iu":
        return values
    listed = column.to_list()
    # Integers of polars are floats as an array only, if some are missing.
    return _whole(values) if any(isinstance(own, float) for own in listed) else listed


def _whole(values: np.ndarray) -> Any:
    """Floats as integers if they are, None where NaN; else, and other types, as they came.

    In pandas and NumPy a column of integers has floats once a part is missing.
    """
    if values.dtype.kind != "f":
        return values
    present = values[~np.isnan(values)]
    exact = 2.0 ** (np.finfo(values.dtype).nmant + 1)  # above, other integers were rounded to these
    if not ((np.abs(present) < exact) & (present == np.trunc(present))).all():
        return values
    return [None if value != value else int(value) for value in values.tolist()]


def _one_for_each_record(paths: Any) -> Any:
    """An array, list or the like with one path for each record."""
    if issparse(paths):
        raise TypeError("paths is a sparse matrix: give paths.toarray()")
    if hasattr(paths, "to_pylist"):  # of pyarrow
        paths = paths.to_pylist()
    one_path = isinstance(paths, str | bytes | Mapping) or getattr(paths, "ndim", 1) == 0
    if one_path or isinstance(paths, Set) or not hasattr(paths, "__iter__"):
        raise TypeError(
            f"paths must be one path for each record, got {type(paths).__name__}: give a list"
        )
    if isinstance(paths, np.ma.MaskedArray):  # missing where masked
        return paths.filled(np.nan) if paths.dtype.kind == "f" else as_array(paths, "paths")
    return paths if isinstance(paths, list) or hasattr(paths, "__array__") else list(paths)


def _integer_array(paths: Any, ndim: int) -> np.ndarray:
    """Keys (one dimension) or digits (two) as an array of integers."""
    what, shape, declared = (
        ("keys", "(n_records,)", "bit_length"),
        (
            "digits",
            "(n_records, n_levels), all paths of one length (for several give tuples, and height "
            "instead of arities)",
            "arities",
        ),
    )[ndim - 1]
    wrong_type = f"{what} must be integers, none missing, as {declared} is given"
    if isinstance(paths, list) and any(isinstance(own, np.ma.MaskedArray) for own in paths):
        raise TypeError(wrong_type)  # of a list of them, NumPy would lose the masks
    try:
        array = np.asarray(paths)
    except ValueError:  # ragged
        array = None
    if array is None or (array.ndim != ndim and array.size):
        raise ValueError(f"{what} must be an array of shape {shape}")
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.uint64)
    if array.dtype.kind in "Of":  # beyond int64, NumPy makes floats or objects of integers
        array = _objects(paths)
        if all(map(_is_integer_type, set(map(type, array.ravel().tolist())))):
            return array
    if array.dtype.kind not in "iu":
        raise TypeError(wrong_type)
    return array


def _objects(paths: Any) -> np.ndarray:
    """An array of objects in which no integer has become a float."""
    if not _is_frame(paths):
        return np.asarray(paths, dtype=object)
    columns = (_column_of(paths, j) for j in range(len(paths.columns)))
    return np.stack([np.asarray(column, dtype=object) for column in columns], axis=1)


def _read_arities(arities: Any, n_levels: int | None) -> list[int]:
    """The arity of each level."""
    if isinstance(arities, Integral) and not isinstance(arities, bool):
        if n_levels is None:
            raise ValueError("height must be given where there is no array to read it from")
        arities = [arities] * n_levels
    if isinstance(arities, str | Mapping) or not hasattr(arities, "__len__"):
        raise TypeError("arities must be an integer, or a sequence of one for each level")
    for arity in arities:
        check_integer("arities", arity, 1, MAX_ARITY)
    return [int(arity) for arity in arities]


def _is_integer_type(kind: type) -> bool:
    return issubclass(kind, Integral) and kind is not bool


def _encode_parts(values: Any, name: str, alphabet: frozenset | None) -> tuple[np.ndarray, list]:
    """Number the parts of a level.

    Parameters
    ----------
    values : integer array or sequence of parts
    name : str
        Of the level, for messages.
    alphabet : frozenset or None

    Returns
    -------
    codes : int32 array
        From 1 in the order of the parts, 0 where there is none.
    table : list
        The parts that occur, in order.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        distinct, positions = np.unique(values, return_inverse=True)
        codes, table = (positions + 1).astype(np.int32), distinct.tolist()
    else:
        values = values.tolist() if isinstance(values, np.ndarray) else values
        present = _check_parts(values, name)
        table = sorted({_plain(part) for part in present})
        codes_of = {part: code for code, part in enumerate(table, 1)}
        numbers = {part: codes_of[_plain(part)] for part in present}
        codes = np.fromiter((numbers.get(v, 0) for v in values), np.int32, len(values))
    if alphabet is not None and not alphabet.issuperset(table):
        raise ValueError(f"a part of {name} is not in alphabet: add it, or leave alphabet out")
    return codes, table


def _check_parts(values: Collection, name: str) -> set:
    """The set of the parts of a level, all text or all integers."""
    kinds = set(map(type, values))
    text = {kind for kind in kinds if issubclass(kind, str)}
    integers = {kind for kind in kinds if _is_integer_type(kind)}
    missing = {kind for kind in kinds if kind.__name__ in ("NoneType", "NAType", "NaTType")}
    for kind in kinds - text - integers - missing:
        not_a_number = issubclass(kind, float | np.floating) and all(
            value != value for value in values if isinstance(value, kind)
        )
        if not not_a_number:
            remedy = 'integers to the dtype "Int64"' if "float" in kind.__name__ else "them"
            raise TypeError(
                f"parts of {name} must be text or integers, got {kind.__name__}: convert {remedy}"
            )
    if text and integers:
        raise TypeError(f"parts of {name} must be all text or all integers: convert them to text")
    return {value for value in set(values) if type(value) in text | integers}


def _plain(part: Any) -> Any:
    """The value of a part, also of a member of an enumeration or a scalar of NumPy."""
    return str.__str__(part) if isinstance(part, str) else int(part)


def _read_alphabet(alphabet: Collection | None, height: int) -> list[frozenset | None]:
    """The parts that each level can have, a frozenset or None."""
    if alphabet is None:
        return [None] * height
    if isinstance(alphabet, Mapping) or not hasattr(alphabet, "__iter__"):
        raise TypeError("alphabet must be a collection of parts, or a sequence of one a level")
    own = list(alphabet)
    nested = [hasattr(entry, "__iter__") and not isinstance(entry, str) for entry in own]
    if not any(nested):
        return [_alphabet_set(own)] * height
    if not all(nested) or len(own) < height:
        raise ValueError(
            f"alphabet must be one collection of parts, or {height} of them, one for each level"
        )
    return [_alphabet_set(entry) for entry in own[:height]]


def _alphabet_set(parts: Iterable) -> frozenset:
    parts = list(parts)
    if not all(isinstance(part, str) or _is_integer_type(type(part)) for part in parts):
        raise TypeError("alphabet must hold text or integers")
    return frozenset(map(_plain, parts))


def _public_names(table: list) -> np.ndarray:
    """64-bit hashes of the parts of a level, after one for the end of a path."""
    digests = (
        hashlib.blake2b(
            f"{type(part).__name__}:{part}".encode(errors="surrogatepass"),
            digest_size=8,
            person=b"lumberjack part",
        ).digest()
        for part in table
    )
    return np.frombuffer(bytes(8) + b"".join(digests), dtype="<u8").astype(np.uint64)


def _given_height(height: int | None, most: int, what: str) -> int:
    """The levels to be searched, by default all."""
    if most < 1:
        raise ValueError(f"there must be at least one level, got no {what}")
    if height is None:
        height = most
    if height > most:
        raise ValueError(f"height must be at most the number of {what}, {most}, got {height}")
    if height > MAX_HEIGHT:
        raise ValueError(f"at most {MAX_HEIGHT} levels can be searched: give a smaller height")
    return int(height)


def _numbered(height: int) -> tuple[str, ...]:
    return tuple(f"level_{j + 1}" for j in range(height))


def _copied(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    return part.encode(errors="surrogatepass").decode(errors="surrogatepass")


def _spell_tuples(parents: np.ndarray, parts: list) -> list[tuple]:
    """Prefixes as tuples, each its parent's with one part more."""
    found = [()]
    for parent, part in zip(parents[1:].tolist(), parts[1:], strict=True):
        found.append((*found[parent], part))
    return found


def _for_pandas(values: Any, pandas: Any) -> Any:
    """A column as pandas should have it: integers stay integers where some are missing."""
    if isinstance(values, np.ndarray):
        return values
    present = [value for value in values if value is not None]
    if any(isinstance(value, int) for value in present):
        dtype = _integer_dtype(present)
        return pandas.array(values, dtype=dtype) if dtype else pandas.Series(values, dtype=object)
    plain = present and all(value == _utf8(value) for value in present)
    return pandas.Series(values, dtype=None if plain else object)


def _for_polars(values: Any, polars: Any) -> Any:
    """A column as polars should have it; what it cannot hold becomes text."""
    if isinstance(values, np.ndarray):
        return values
    present = [value for value in values if value is not None]
    if any(isinstance(value, int) for value in present):
        dtype = _integer_dtype(present)
        if dtype:
            return polars.Series(values, dtype=getattr(polars, dtype))
    return [None if value is None else _utf8(str(value)) for value in values]


def _integer_dtype(values: list[int]) -> str | None:
    """The type of 64 bits that holds the values, if one does."""
    low, high = min(values), max(values)
    if low >= -(2**63) and high < 2**63:
        return "Int64"
    return "UInt64" if low >= 0 and high < 2**64 else None


def _utf8(text: str) -> str:
    """Text with halves of surrogate pairs, which columns of text cannot hold, spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()
