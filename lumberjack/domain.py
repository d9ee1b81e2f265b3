"""What is public about a table, and the table encoded by it.

A private forest may not look for ranges, categories or classes in the records that it protects, so
they are declared. :class:`Domain` holds the declarations and nothing of the data; it turns a frame
or an array into one matrix of 32-bit floats, each record by itself.

Errors speak to the owner of the table: they name the column and the remedy, never a value, a row or
a number of rows. They depend on the data and lie outside the privacy guarantee.
"""

import json
import math
import numbers
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning

from lumberjack._domain import UNKNOWN_CODE, Codebook

__all__ = ["Domain", "PrivacyLeakWarning"]

FORMAT_VERSION = 1
UNKNOWN = UNKNOWN_CODE
_CHUNK = 2**16  # labels that are looked up at a time, which bounds the temporary arrays
FLOAT32_MAX = float(np.finfo(np.float32).max)


class PrivacyLeakWarning(UserWarning):
    """Something that the guarantee takes for public was read from the data."""


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """The public declarations of a table: columns, bounds, categories and classes.

    Most domains come from :meth:`declare` or :meth:`from_dict`.

    Parameters
    ----------
    feature_names : sequence of str
        The columns in the order of the encoded matrix.
    lower, upper : array-like of shape (n_features,)
        Bounds of the numeric columns, 0 for the categorical ones. They are rounded to the nearest
        32-bit float, as the values are, so a value within the bounds is still within them after
        rounding. Bounds beyond the range of 32-bit floats become the end of that range.
    categories : sequence
        For each column its categories, or None when it is numeric.
    classes : array-like or None, default=None
        The class labels in sorted order.
    inferred : sequence of str, default=()
        What was read from the data, such as ``"bounds of age"``.
    named : bool, default=True
        Whether the columns of a frame are found by name. False when the declaration came from a
        table without names.
    target_bounds : (float, float) or None, default=None
        Bounds of the target of a regression.

    Examples
    --------
    >>> domain = Domain.from_dict({"age": [17, 90], "sex": ["Female", "Male"]})
    >>> domain
    Domain(
      age: 17 to 90
      sex: 'Female', 'Male'
    )
    >>> domain.encode([[30, "Male"], [None, "unheard of"]], layout="rows")
    array([[30.,  1.],
           [nan, -1.]], dtype=float32)
    """

    feature_names: tuple
    lower: np.ndarray
    upper: np.ndarray
    categories: tuple
    classes: np.ndarray | None = None
    inferred: tuple = ()
    named: bool = True
    target_bounds: tuple | None = None

    def __post_init__(self):
        values = [None if own is None else tuple(own) for own in self.categories]
        for field, value in {
            "feature_names": tuple(self.feature_names),
            "lower": _frozen(_round_bounds(self.lower)),
            "upper": _frozen(_round_bounds(self.upper)),
            "categories": tuple(values),
            "classes": None if self.classes is None else _frozen(np.array(self.classes)),
            "inferred": tuple(self.inferred),
            "target_bounds": _check_target_bounds(self.target_bounds),
        }.items():
            object.__setattr__(self, field, value)

    @classmethod
    def declare(
        cls,
        X,
        y,
        *,
        bounds=None,
        categories=None,
        classes=None,
        target_bounds=None,
        feature_names=None,
        regression=False,
    ):
        """Read the declarations for a table.

        Columns are numeric or categorical. Those named in `categories` and those of a categorical
        dtype are categorical (a list in `categories` goes before that of the dtype); those named in
        `bounds` are numeric; for the others the type decides. Columns of booleans are numeric with
        the bounds 0 and 1 unless `bounds` names them or holds arrays.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Its column names and types are used, and are public. Its values are read only for what
            is "infer", and to tell the type of an object column that `bounds` and `categories` do
            not name. The categories of a pandas categorical or polars Enum type count as declared:
            list them from knowledge, not by ``astype("category")``, which collects them from the
            data.
        y : array-like of shape (n_samples,)
            Labels, read only when `classes` is "infer".
        bounds : tuple, dict, "infer" or None, default=None
            A pair ``(lo, hi)`` for all numeric columns; a pair of arrays with one entry for each
            column, or for each numeric column; or a dict from column to pair. The columns of a
            table without names are 0, 1, ... or "x0", "x1", ...
        categories : dict, "infer" or None, default=None
            A dict from column to list of text, numbers or booleans. Numbers are compared as
            64-bit floats, so that 1 and 1.0 are the same category.
        classes : array-like, "infer" or None, default=None
            The class labels.
        target_bounds : tuple, "infer" or None, default=None
            A pair ``(lo, hi)``, the bounds of the target of a regression.
        feature_names : sequence of str or None, default=None
            Names for the columns of a table without names.
        regression : bool, default=False
            Whether `y` is a number, so that `target_bounds` are needed instead of `classes`.

        Returns
        -------
        Domain

        Raises
        ------
        ValueError
            If something is not declared; the message names the columns and shows the line to write.

        Warns
        -----
        PrivacyLeakWarning
            Once, if anything was read from the data.

        Examples
        --------
        >>> X = [[39, "State-gov"], [50, "Private"]]
        >>> domain = Domain.declare(
        ...     X,
        ...     ["poor", "rich"],
        ...     bounds={0: (17, 90)},
        ...     categories={1: ["Private", "State-gov"]},
        ...     classes=["rich", "poor"],
        ... )
        >>> domain.classes.tolist(), domain.encode_classes(["rich", "poor"]).tolist()
        (['poor', 'rich'], [1, 0])
        """
        table = _read_table(X, feature_names)
        labels = _read_labels(y, table.n_records)
        draft = _draft(table, bounds, categories)
        known_classes = target_pair = None
        if regression:
            target_pair = _read_target_bounds(target_bounds, labels)
            undeclared = draft.undeclared + ([_ASK_TARGET] if target_pair is None else [])
            inferred = draft.inferred + (["bounds of y"] if _is_infer(target_bounds) else [])
        else:
            known_classes = _read_classes(classes, labels)
            undeclared = draft.undeclared + ([_ASK_CLASSES] if known_classes is None else [])
            inferred = draft.inferred + (["classes"] if _is_infer(classes) else [])
        if undeclared:
            raise ValueError("\n".join(undeclared))
        if inferred:
            _warn_leak(inferred)
        return cls(
            table.feature_names,
            draft.lower,
            draft.upper,
            draft.categories,
            known_classes,
            inferred,
            table.names is not None,
            target_pair,
        )

    @property
    def n_features(self):
        """Number of columns."""
        return len(self.feature_names)

    @property
    def is_categorical(self):
        """Boolean array, True for the categorical columns."""
        return np.array([own is not None for own in self.categories], dtype=bool)

    @property
    def n_categories(self):
        """Number of categories of each column as an int32 array, 0 for the numeric columns."""
        return np.array([len(own or ()) for own in self.categories], dtype=np.int32)

    def encode(self, X, *, layout="columns", caller="Domain", spare=0, n_threads=1):
        """Turn a table into one matrix of 32-bit floats.

        A numeric value becomes the nearest 32-bit float; one beyond their range becomes the bound
        on its side. A category becomes its place in the list of categories, -1 if it is not there.
        Missing values (None, NaN, NA, NaT) become NaN. Each entry depends on its own value alone.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            The columns of a frame are found by name, in any order.
        layout : {"columns", "rows"}, default="columns"
            "columns" gives the shape (n_features, n_samples), "rows" (n_samples, n_features); both
            are contiguous in C order.
        caller : str, default="Domain"
            Who expects the columns, for messages.
        spare : int, default=0
            Features for which there shall be room behind those of the table, not filled, so that
            they can be added later without a copy of the matrix.
        n_threads : int, default=1
            Threads for an array of floats; other tables are read by one.

        Returns
        -------
        ndarray of float32

        Raises
        ------
        ValueError, TypeError
            If columns are absent or unexpected, or a numeric column holds text, infinite values or
            objects.

        Examples
        --------
        >>> domain = Domain.from_dict({"age": [17, 90], "hours": [1, 99]})
        >>> domain.encode([[30, 40], [1e300, 20]])
        array([[30., 90.],
               [40., 20.]], dtype=float32)
        """
        if layout not in ("columns", "rows"):
            raise ValueError('layout must be "columns" or "rows"')
        if _is_float_array(X, self.n_features):
            encoded, rows = _empty_codes(len(X), self.n_features, layout, spare)
            infinite = self._codebook.encode(X, rows, n_threads)
            if infinite >= 0:
                _refuse_infinite(self.feature_names[infinite])
            return encoded
        table = _read_table(X)
        places = self._find_columns(table, caller)
        encoded, rows = _empty_codes(table.n_records, self.n_features, layout, spare)
        for j, place in enumerate(places):
            self._encode_column(j, table.read(place), rows[:, j])
        return encoded

    def encode_classes(self, y):
        """Turn labels into places in `classes`.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels, each of them in `classes`.

        Returns
        -------
        ndarray of int32

        Raises
        ------
        ValueError
            If a label is missing or not in `classes`.

        Examples
        --------
        >>> Domain.from_dict({"a": [0, 1]}, classes=["no", "yes"]).encode_classes(["yes", "no"])
        array([1, 0], dtype=int32)
        """
        if self.classes is None:
            raise ValueError("the domain declares no classes; give the list of them as classes")
        labels = _read_labels(y)
        codes = np.empty(_length(labels), dtype=np.int32)
        known = self.classes.tolist()
        for start in range(0, len(codes), _CHUNK):
            part = _look_up(_slice(labels, start, start + _CHUNK), known)
            if np.isnan(part).any():
                raise ValueError(_MISSING_LABEL)
            if (part == UNKNOWN).any():
                raise ValueError(
                    "y holds a label that is not in classes; add it there, or leave out its records"
                )
            codes[start : start + _CHUNK] = part
        return codes

    def encode_target(self, y, unit):
        """Scale a regression target to soft labels.

        A target is clipped to `target_bounds`, which are mapped to 0 and `unit`, and rounded to the
        nearest integer.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
        unit : int

        Returns
        -------
        ndarray of int32

        Raises
        ------
        ValueError
            If a target is missing or infinite.

        Examples
        --------
        >>> domain = Domain((), (), (), (), target_bounds=(0, 10))
        >>> domain.encode_target([-5, 5, 10], 100)
        array([  0,  50, 100], dtype=int32)
        """
        if self.target_bounds is None:
            raise ValueError("the domain declares no bounds of y; give them as target_bounds")
        low, high = self.target_bounds
        values = _target_numbers(_read_labels(y))
        share = (np.clip(values, low, high) - low) / (high - low)
        return np.floor(share * unit + 0.5).astype(np.int32)

    @staticmethod
    def parse_declaration(declaration):
        """Read a declaration of columns, as a JSON file holds it.

        Parameters
        ----------
        declaration : dict
            From column to ``[lo, hi]`` (two numbers), to a list of text, or, if that could be
            mistaken, to ``{"bounds": [lo, hi]}`` or ``{"categories": [...]}``; or what
            :meth:`to_dict` returned.

        Returns
        -------
        bounds, categories : dict
            The parameters of these names.

        Examples
        --------
        >>> Domain.parse_declaration({"age": [17, 90], "wing": {"categories": [1, 2]}})
        ({'age': (17, 90)}, {'wing': [1, 2]})
        """
        if not isinstance(declaration, Mapping):
            raise TypeError("a declaration must be a dict from column to bounds or categories")
        bounds, categories = {}, {}
        for name, entry in _features_of(declaration).items():
            if not isinstance(name, str):
                raise TypeError("a declaration must name its columns by text")
            kind, values = _parse_entry(name, entry)
            if kind == "bounds":
                bounds[name] = tuple(values)
            else:
                categories[name] = list(values)
        return bounds, categories

    @classmethod
    def from_dict(cls, declaration, *, classes=None):
        """Make a domain without a table.

        Parameters
        ----------
        declaration : dict
            A declaration as in :meth:`parse_declaration`, its columns in order.
        classes : array-like or None, default=None
            The class labels; by default those of `declaration`, if it is from :meth:`to_dict`.

        Returns
        -------
        Domain

        Examples
        --------
        >>> domain = Domain.from_dict({"age": [17, 90]}, classes=[0, 1])
        >>> Domain.from_dict(domain.to_dict()) == domain
        True
        """
        bounds, categories = cls.parse_declaration(declaration)
        names = list(_features_of(declaration))
        if not names:
            raise ValueError("the declaration names no columns")
        whole = declaration if _is_whole(declaration) else {}
        if classes is None:
            classes = whole.get("classes")
        if _is_infer(classes):
            raise ValueError('classes="infer" needs a table; give the list of classes')
        positions = {name: j for j, name in enumerate(names)}
        pairs = {names[j]: pair for j, pair in _bounds_dict(bounds, positions).items()}
        values = {names[j]: own for j, own in _categories_dict(categories, positions).items()}
        return cls(
            names,
            [pairs.get(name, (0.0, 0.0))[0] for name in names],
            [pairs.get(name, (0.0, 0.0))[1] for name in names],
            [values.get(name) for name in names],
            None if classes is None else _check_classes(classes),
            whole.get("inferred", ()),
            whole.get("named", True),
            whole.get("target_bounds"),
        )

    def to_dict(self):
        """Return the domain as a dict that JSON can hold and :meth:`from_dict` reads.

        Returns
        -------
        dict

        Examples
        --------
        >>> Domain.from_dict({"age": [17, 90], "sex": ["Female", "Male"]}).to_dict()["features"]
        {'age': [17, 90], 'sex': ['Female', 'Male']}
        """
        return {
            "version": FORMAT_VERSION,
            "features": {name: self._entry(j) for j, name in enumerate(self.feature_names)},
            "classes": None if self.classes is None else self.classes.tolist(),
            "inferred": list(self.inferred),
            "named": self.named,
            "target_bounds": None if self.target_bounds is None else list(self.target_bounds),
        }

    def __eq__(self, other):
        return isinstance(other, Domain) and self.to_dict() == other.to_dict()

    __hash__ = None

    def __repr__(self):
        lines = []
        for j, name in enumerate(self.feature_names):
            if self.categories[j] is None:
                lo, hi = _short(self.lower[j]), _short(self.upper[j])
                lines.append(f"{name}: {lo} to {hi}")
            else:
                lines.append(f"{name}: {_listed(self.categories[j])}")
        if self.classes is not None:
            lines.append(f"classes: {_listed(self.classes.tolist())}")
        if self.target_bounds is not None:
            lines.append("y: {} to {}".format(*map(_short, self.target_bounds)))
        if self.inferred:
            lines.append(f"read from the data: {', '.join(self.inferred)}")
        return "\n  ".join(["Domain(", *lines]) + "\n)"

    def _entry(self, j):
        """Return the entry of column j in a declaration."""
        values = self.categories[j]
        if values is None:
            return [_short(self.lower[j]), _short(self.upper[j])]
        if all(isinstance(value, str) for value in values):
            return list(values)
        return {"categories": list(values)}

    @cached_property
    def _codebook(self):
        """The domain as the kernel for arrays of floats reads it."""
        keys, places = [], []
        for values in self.categories:
            own = (None, None) if values is None else _number_keys(_places(values))
            keys.append(own[0])
            places.append(own[1])
        return Codebook(self.lower, self.upper, keys, places)

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_codebook"}

    def _find_columns(self, table, caller):
        """Return the place in the table of each declared column."""
        if self.named and table.names is not None:
            _check_names(table.names, self.feature_names)
            places = {name: place for place, name in enumerate(table.names)}
            return [places[name] for name in self.feature_names]
        if table.n_columns != self.n_features:
            raise ValueError(
                f"X has {table.n_columns} features, but {caller} is expecting "
                f"{self.n_features} features as input"
            )
        return range(self.n_features)

    def _encode_column(self, j, column, out):
        """Write the encoded column j to `out`."""
        if self.categories[j] is not None:
            out[:] = _look_up(column, self.categories[j])
            return
        values = _numbers(column, self.feature_names[j])
        with np.errstate(over="ignore"):
            out[:] = values
        beyond = np.isinf(out)
        if beyond.any():
            _check_finite(values, self.feature_names[j])
            out[beyond] = np.where(values[beyond] > 0, self.upper[j], self.lower[j])


# Declarations: from parameters to bounds and categories by position


class _Draft(NamedTuple):
    """What `bounds` and `categories` and the types of the columns amount to."""

    lower: list
    upper: list
    categories: list
    inferred: list  # what was read from the data
    undeclared: list  # one paragraph for each kind of declaration that is absent


def _draft(table, bounds, categories):
    """Settle each column of a table as numeric or categorical."""
    values = _categories_dict(categories, table.positions)
    pairs = _bounds_dict(bounds, table.positions) if isinstance(bounds, Mapping) else {}
    _refuse_both([table.feature_names[j] for j in sorted(pairs.keys() & values.keys())])
    open_columns = [j for j in range(table.n_columns) if j not in pairs and j not in values]
    kinds = {j: _kind(table.read(j)) for j in open_columns}
    if not table.typed:
        # A list has no type but that of its values, and these must not decide on the bounds.
        kinds = {j: "numeric" if kind == "bool" else kind for j, kind in kinds.items()}
    default, listed = _bounds_default(bounds, table, kinds)
    pairs.update(listed)
    inferred, absent = [], {}
    for j, kind in kinds.items():
        if kind == "categorical":
            values[j] = _check_categories(table.read(j).values, table.feature_names[j])
        elif kind == "text" or (kind == "empty" and _is_infer(categories) and j not in pairs):
            _settle_text(table, j, categories, values, inferred, absent)
        elif j not in pairs:
            _settle_number(table, j, kind, default, pairs, inferred, absent)
    ends = [pairs.get(j, (0.0, 0.0)) for j in range(table.n_columns)]
    return _Draft(
        [lo for lo, _ in ends],
        [hi for _, hi in ends],
        [values.get(j) for j in range(table.n_columns)],
        inferred,
        [_ask(what, names) for what, names in sorted(absent.items())],
    )


def _settle_text(table, j, categories, values, inferred, absent):
    """Find the categories of a column of text, or note that they are absent."""
    name = table.feature_names[j]
    if _is_infer(categories):
        values[j] = _infer_categories(table.read(j), name)
        inferred.append(f"categories of {name}")
    else:
        absent.setdefault("categories", []).append(name)


def _settle_number(table, j, kind, default, pairs, inferred, absent):
    """Find the bounds of a column of numbers, or note that they are absent."""
    name = table.feature_names[j]
    if kind == "bool":
        pairs[j] = (0.0, 1.0)
    elif _is_infer(default):
        pairs[j] = _infer_bounds(table.read(j), name)
        inferred.append(f"bounds of {name}")
    elif kind != "numeric":
        # A default for all numeric columns would let the records decide which columns are numeric.
        absent.setdefault("type", []).append(name)
    elif default is None:
        absent.setdefault("bounds", []).append(name)
    else:
        pairs[j] = default


def _kind(column):
    """Return the kind of a column that no parameter names.

    An object column is of a kind when all its present entries are; it is "empty" without any, and
    "unclear" if numbers and booleans are mixed or other objects are there.
    """
    if isinstance(column, _Coded):
        return column.kind
    if column.dtype.kind != "O":
        return "bool" if column.dtype.kind == "b" else "numeric"
    types = _present_types(column)
    if any(issubclass(own, (str, bytes)) for own in types):
        return "text"
    if not types:
        return "empty"
    if all(issubclass(own, (bool, np.bool_)) for own in types):
        return "bool"
    numeric = all(issubclass(own, (numbers.Real, Decimal)) and own is not bool for own in types)
    return "numeric" if numeric else "unclear"


def _present_types(column):
    """Return the types of the entries of an object column that are not missing."""
    types = set(map(type, column))
    floats = {own for own in types if issubclass(own, (float, np.floating))}
    if floats and all(map(_is_missing, (v for v in column if type(v) in floats))):
        types -= floats
    return {own for own in types if own is not type(None) and own.__name__ not in _MISSING_TYPES}


def _bounds_dict(bounds, positions):
    """Return the pairs of a dict of bounds by position."""
    found = {}
    for key, pair in bounds.items():
        j = _position(key, positions, "bounds", found)
        found[j] = _check_pair(pair, f"bounds of {key!r}")
    return found


def _bounds_default(bounds, table, kinds):
    """Return the bounds for all numeric columns, and those of a pair of arrays by position."""
    if bounds is None or _is_infer(bounds) or isinstance(bounds, Mapping):
        return (bounds if _is_infer(bounds) else None), {}
    if not isinstance(bounds, (tuple, list, np.ndarray)) or len(bounds) != 2:
        raise TypeError(_BOUNDS_FORMS)
    ndims = {np.ndim(bounds[0]), np.ndim(bounds[1])}
    if ndims == {0}:
        return _check_pair(bounds, "bounds"), {}
    if ndims != {1} or len(bounds[0]) != len(bounds[1]):
        raise TypeError(_BOUNDS_FORMS)
    numeric = [j for j, kind in kinds.items() if kind not in ("categorical", "text")]
    pairs = list(zip(bounds[0], bounds[1], strict=True))
    if len(pairs) == table.n_columns:
        places = range(table.n_columns)
    elif len(pairs) == len(numeric):
        places = numeric
    else:
        raise ValueError(
            f"the arrays of bounds have {len(pairs)} entries; give one for each of the "
            f"{table.n_columns} columns of X, or one for each of its {len(numeric)} numeric columns"
        )
    by_place = dict(zip(places, pairs, strict=True))
    names = table.feature_names
    return None, {j: _check_pair(by_place[j], f"bounds of {names[j]!r}") for j in numeric}


def _check_pair(pair, what):
    """Return a pair of bounds as floats."""
    if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
        raise TypeError(f"{what} must be a pair (lo, hi) of numbers")
    if not all(isinstance(end, numbers.Real) for end in pair):
        raise TypeError(f"{what} must be a pair (lo, hi) of numbers")
    lo, hi = (_real(end) for end in pair)
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise ValueError(f"{what} must be finite: give the limits that the values can reach")
    if lo > hi:
        raise ValueError(f"{what} are reversed: the lower one comes first")
    return lo, hi


def _round_bounds(ends):
    """Round bounds to 32-bit floats, as the values are, within the range of those."""
    return np.clip(np.asarray(ends, dtype=np.float64), -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)


def _categories_dict(categories, positions):
    """Return the lists of a dict of categories by position."""
    if categories is None or _is_infer(categories):
        return {}
    if not isinstance(categories, Mapping):
        raise TypeError(
            'categories must be None, "infer" or a dict from column to list of categories'
        )
    found = {}
    for key, values in categories.items():
        j = _position(key, positions, "categories", found)
        found[j] = _check_categories(values, key)
    return found


def _check_categories(values, name):
    """Return a list of categories as a tuple of text, numbers and booleans."""
    if isinstance(values, (str, bytes, Mapping, set, frozenset)) or not hasattr(values, "__iter__"):
        raise TypeError(f"the categories of {name!r} must be a list")
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if any(map(_is_missing, values)):
        raise ValueError(
            f"the categories of {name!r} hold a missing value; take it out, missing values need no "
            "category"
        )
    if not all(isinstance(value, (str, int, float)) for value in values):
        raise TypeError(
            f"the categories of {name!r} must be text, numbers or booleans; convert the column and "
            "its categories to text"
        )
    if any(value in (math.inf, -math.inf) for value in values):
        raise ValueError(f"the categories of {name!r} hold an infinite value; take it out")
    if not values:
        raise ValueError(f"{name!r} has no categories; list those that it can take in categories")
    if len({_key(value) for value in values}) < len(values):
        raise ValueError(
            f"the categories of {name!r} repeat one (numbers are compared as 64-bit floats); list "
            "each once"
        )
    return tuple(values)


def _position(key, positions, parameter, found):
    """Return the position of a column, by name or number, that a parameter names once."""
    if key not in positions:
        raise ValueError(
            f"{parameter} names {key!r}, which is not a column of X; its columns are "
            f"{_listed([name for name in positions if isinstance(name, str)], 20)}"
        )
    if positions[key] in found:
        raise ValueError(f"{parameter} names the column {key!r} twice, by name and by number")
    return positions[key]


def _refuse_both(names):
    """Refuse columns that are declared both numeric and categorical."""
    if names:
        raise ValueError(
            f"both bounds and categories name {_listed(names)}; a column is either numeric or "
            "categorical"
        )


def _infer_bounds(column, name):
    """Read the bounds of a numeric column from its values."""
    values = _numbers(column, name)
    _check_finite(values, name)
    values = values[~np.isnan(values)]
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def _infer_categories(column, name):
    """Read the categories of a column of text from its entries, numbers first."""
    try:
        present = {_key(entry) for entry in set(column) if not _is_missing(entry)}
    except TypeError:
        raise TypeError(_objects(name)) from None
    if not all(isinstance(entry, (str, float)) for entry in present):
        raise TypeError(_objects(name))
    ordered = sorted(present, key=lambda entry: (isinstance(entry, str), entry))
    # A column without entries stays categorical: whatever comes later is an unknown category.
    return _check_categories(ordered or [""], name)


def _warn_leak(inferred):
    """Warn of what was read from the data, at the line outside this package that asked for it."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("lumberjack."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"read from the data: {', '.join(inferred)}. The guarantee takes this for public and does "
        "not cover it; declare it instead, from knowledge that does not come from the data.",
        PrivacyLeakWarning,
        stacklevel=level,
    )


# Classes and labels


def _read_classes(classes, labels):
    """Return the sorted classes, or None if they are not declared."""
    if classes is None:
        return None
    if not _is_infer(classes):
        return _check_classes(classes)
    found = _infer_classes(labels)
    if len(found) < 2:
        raise ValueError("y holds one class only; a classifier needs at least two classes")
    return found


def _read_target_bounds(target_bounds, labels):
    """Return the bounds of the target, or None if they are not declared."""
    if not _is_infer(target_bounds):
        return _check_target_bounds(target_bounds)
    values = _target_numbers(labels)
    low, high = float(values.min()), float(values.max())
    if low == high:
        raise ValueError("y holds one value only; give target_bounds")
    return _check_target_bounds((low, high))


def _check_target_bounds(target_bounds):
    """Return declared bounds of the target as floats."""
    if target_bounds is None:
        return None
    low, high = _check_pair(target_bounds, "target_bounds")
    if low == high:
        raise ValueError("target_bounds are equal; give the limits that the target can reach")
    if not sys.float_info.min <= high - low < math.inf:
        raise ValueError(
            "target_bounds are too close together or too far apart for 64-bit floats; scale the "
            "target"
        )
    return low, high


def _target_numbers(labels):
    """Return the target as 64-bit floats."""
    values = _numbers(labels, "y").astype(np.float64)
    _check_finite(values, "y")
    if np.isnan(values).any():
        raise ValueError("y holds a missing value (NaN); leave out its records")
    return values


def _check_classes(classes):
    """Return declared classes as a sorted array."""
    if isinstance(classes, (str, bytes, Mapping)) or not hasattr(classes, "__iter__"):
        raise TypeError('classes must be a list of labels or "infer"')
    values = [value.item() if isinstance(value, np.generic) else value for value in classes]
    if any(map(_is_missing, values)):
        raise ValueError("classes holds a missing value; list the labels only")
    _check_label_types({type(value) for value in values}, "classes")
    found = _sorted_labels(values)
    if len(found) < len(values):
        raise ValueError("classes repeats a label; list each once")
    if len(found) < 2:
        raise ValueError("classes declares less than two classes; list all that y can hold")
    return found


def _infer_classes(labels):
    """Read the classes from labels."""
    if isinstance(labels, _Coded):
        if (labels.codes < 0).any():
            raise ValueError(_MISSING_LABEL)
        values = [labels.values[code] for code in np.unique(labels.codes)]
        _check_label_types({type(value) for value in values}, "y")
        return _sorted_labels(values)
    if labels.dtype.kind != "O":
        return _sorted_labels(labels)
    if any(map(_is_missing, labels)):
        raise ValueError(_MISSING_LABEL)
    _check_label_types(set(map(type, labels)), "y")
    return _sorted_labels(set(labels))


def _check_label_types(types, what):
    """Refuse labels of types that cannot be sorted or compared."""
    kinds = set()
    for own in types:
        if issubclass(own, str):
            kinds.add("text")
        elif issubclass(own, (bool, np.bool_)):
            kinds.add("booleans")
        else:
            kinds.add("numbers" if issubclass(own, numbers.Real) else "other objects")
    if "other objects" in kinds or len(kinds) > 1:
        raise ValueError(
            f"Unknown label type: {what} must hold text only, whole numbers only or booleans only"
        )


def _sorted_labels(values):
    """Return the distinct labels in order; numbers must be whole."""
    array = np.unique(np.asarray(list(values) if isinstance(values, set) else values))
    if array.dtype.kind == "f":
        if np.isnan(array).any():
            raise ValueError(_MISSING_LABEL)
        if not (np.isfinite(array) & (array == np.floor(array))).all():
            raise ValueError(
                "Unknown label type: continuous. Labels of classes must be text, booleans or whole "
                "numbers"
            )
    return array


def _read_labels(y, n_records=None):
    """Return labels as a column, checked against the number of records."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if issparse(y):
        raise TypeError("y is sparse; pass a dense array of one label for each record")
    labels = _read_target(y)
    if n_records is not None and _length(labels) != n_records:
        raise ValueError("X and y differ in their numbers of records; give one label for each")
    return labels


def _read_target(y):
    """Return one-dimensional labels, or the column of a table of one column, as a column."""
    if hasattr(type(y), "columns"):
        table = _read_table(y)
        _check_one_column(table.n_columns)
        return table.read(0)
    if _is_pandas(y):
        return _plain(_read_pandas(y), "y")
    array = _as_array(y, "y")
    if array.ndim == 2:
        _check_one_column(array.shape[1])
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError("y should be a 1d array of one label for each record")
    return _plain(array, "y")


def _check_one_column(n_columns):
    """Refuse several targets, and warn like scikit-learn of a table of one."""
    if n_columns != 1:
        raise ValueError("y should be a 1d array; several targets are not supported")
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y "
        "to (n_samples, ), for example using ravel().",
        DataConversionWarning,
        stacklevel=2,
    )


# Tables: arrays and frames as columns


class _Coded(NamedTuple):
    """A column of a categorical type, or of booleans some of which are missing."""

    codes: np.ndarray  # positions in values, -1 where missing
    values: list
    kind: str = "categorical"  # or "bool"


class _Table(NamedTuple):
    """A table read by columns; a column is a numeric or object array, or _Coded."""

    n_records: int
    names: tuple | None  # None for a table whose columns are numbered
    feature_names: tuple
    positions: dict  # from name or number to position
    read: Callable
    typed: bool = True  # False for lists, whose types are only those of their values

    @property
    def n_columns(self):
        return len(self.feature_names)


def _read_table(X, feature_names=None):
    """Return an array or frame as a table."""
    if issparse(X):
        raise TypeError("Sparse data was passed for X, but dense data is required; use X.toarray()")
    if not hasattr(type(X), "columns"):  # of a lazy frame, the attribute itself would warn
        labels, shape, read = _array_columns(X)
    elif _is_pandas(X):
        labels, shape = list(X.columns), X.shape
        read = _pandas_column(X)
    else:
        frame = _eager_frame(X)
        labels, shape = frame.columns, frame.shape
        read = _narwhals_column(frame)
    names = _text_names(labels)
    if feature_names is not None:
        names = _given_names(feature_names, names, shape[1])
    shown = names or tuple(f"x{j}" for j in range(shape[1]))
    _check_shape(shape)
    positions = {name: j for j, name in enumerate(shown)}
    if not _text_names(labels):
        positions.update({label: j for j, label in enumerate(labels)})
    return _Table(
        shape[0],
        names,
        shown,
        positions,
        lambda j: _plain(read(j), f"column {shown[j]!r}"),
        hasattr(X, "dtype") or hasattr(type(X), "columns"),
    )


def _array_columns(X):
    """Return the labels, the shape and the reader of columns of an array-like."""
    array = _as_array(X, "X")
    if array.ndim < 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
            "contains a single sample."
        )
    if array.ndim > 2:
        raise ValueError(f"Found array with dim {array.ndim}, while dim <= 2 is required for X.")
    return list(range(array.shape[1])), array.shape, lambda j: array[:, j]


def _is_float_array(X, n_features):
    """Tell a plain array with so many columns, which needs no reading as a table."""
    plain = type(X) is np.ndarray and X.dtype in (np.float32, np.float64)
    return plain and X.ndim == 2 and len(X) > 0 and X.shape[1] == n_features


def _empty_codes(n_records, n_features, layout, spare):
    """Return an encoded matrix to be filled, and a view by rows of what the table fills."""
    if layout == "rows":
        encoded = np.empty((n_records, n_features + spare), dtype=np.float32)
        return encoded, encoded[:, :n_features]
    encoded = np.empty((n_features + spare, n_records), dtype=np.float32)
    return encoded, encoded[:n_features].T


def _as_array(X, what):
    """Return an array-like as an array in which text has not swallowed numbers."""
    if isinstance(X, np.ma.MaskedArray):
        X, mask = X.data.astype(object), np.ma.getmaskarray(X)
        X[mask] = None
    try:
        array = np.asarray(X)
        if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
            array = np.asarray(X, dtype=object)
    except ValueError:
        raise ValueError(
            f"{what} is not rectangular; give each record the same number of entries"
        ) from None
    return array


def _pandas_column(X):
    """Return the reader of columns of a pandas frame."""
    return lambda j: _read_pandas(X.iloc[:, j])


def _is_pandas(X):
    """Tell a pandas frame or series by its ways; the package itself need not be there."""
    return hasattr(X, "iloc")


def _read_pandas(series):
    """Return a pandas series as a column."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy()
    if hasattr(dtype, "categories"):
        return _Coded(np.asarray(series.cat.codes), list(dtype.categories))
    if getattr(dtype, "kind", "O") not in "biuf":
        return np.asarray(series, dtype=object)
    if not series.isna().any():
        return series.to_numpy(dtype=getattr(dtype, "numpy_dtype", dtype.type))
    return _numbers_or_booleans(series.to_numpy(dtype=np.float64, na_value=math.nan), dtype.kind)


def _narwhals():
    """Return narwhals, which reads the frames of other libraries than pandas."""
    try:
        import narwhals
    except ImportError:
        raise TypeError(
            "X is a frame that is not from pandas: install narwhals (pip install narwhals), or "
            "convert it with X.to_pandas()"
        ) from None
    return narwhals


def _eager_frame(X):
    """Return a frame of another library than pandas as a frame of narwhals."""
    nw = _narwhals()
    try:
        return nw.from_native(X, eager_only=True)
    except TypeError:
        raise TypeError(
            "X is not a frame that can be read; collect a lazy frame with X.collect(), or pass an "
            "array or a pandas or polars DataFrame"
        ) from None


def _narwhals_column(frame):
    """Return the reader of columns of a narwhals frame."""
    return lambda j: _read_narwhals(frame[frame.columns[j]])


def _read_narwhals(series):
    """Return a narwhals series as a column.

    The categories of an Enum are declared by the type; those of a Categorical come from the data,
    so it is read as text.
    """
    nw = _narwhals()
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        if not series.is_null().any():
            return series.to_numpy()
        kind = "b" if dtype == nw.Boolean else "f"
        return _numbers_or_booleans(series.cast(nw.Float64).to_numpy(), kind)
    if dtype == nw.Enum:
        values = list(dtype.categories)
        codes = _look_up(_objects_of(series.cast(nw.String).to_list()), values)
        return _Coded(np.where(np.isnan(codes), -1, codes).astype(np.int64), values)
    if dtype == nw.Categorical:
        series = series.cast(nw.String)
    return _objects_of(series.to_list())


def _numbers_or_booleans(values, kind):
    """Return a column of floats, which stand for booleans if its type is of kind "b"."""
    if kind != "b":
        return values
    return _Coded(np.where(np.isnan(values), -1, values).astype(np.int8), [False, True], "bool")


def _objects_of(entries):
    """Return a list as an object array of one dimension."""
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array


def _plain(column, what):
    """Return a column with text as objects; refuse types that are neither numbers nor text."""
    if isinstance(column, _Coded) or column.dtype.kind in "biufO":
        return column
    kind = column.dtype.kind
    if kind in "UT":
        return column.astype(object)
    if kind == "c":
        raise ValueError(f"Complex data not supported: {what} is complex; pass real numbers")
    if kind in "mM" and np.isnat(column).all():
        return np.full(column.shape, math.nan)
    if kind in "mM":
        raise TypeError(f"{what} holds dates or durations; convert it to numbers or to text")
    raise TypeError(f"{what} holds bytes or records; convert it to numbers or to text")


def _length(column):
    """Return the number of entries of a column."""
    return len(column.codes if isinstance(column, _Coded) else column)


def _slice(column, start, end):
    """Return a part of a column."""
    if isinstance(column, _Coded):
        return column._replace(codes=column.codes[start:end])
    return column[start:end]


def _text_names(labels):
    """Return the names of columns, or None if they are not text."""
    text = [isinstance(label, str) for label in labels]
    repeated = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if repeated:
        raise ValueError(f"X repeats the column names {_listed(repeated)}; rename the columns")
    if any(text) and not all(text):
        raise TypeError(
            "Feature names are only supported if all input features have string names; convert "
            "them with X.columns = X.columns.astype(str)"
        )
    return tuple(map(str, labels)) if all(text) and text else None


def _given_names(given, names, n_columns):
    """Return the names of columns that a parameter gives, which must not contradict the table."""
    given = tuple(given)
    if not all(isinstance(name, str) for name in given) or len(set(given)) < len(given):
        raise TypeError("feature_names must be distinct text")
    if len(given) != n_columns:
        raise ValueError(f"feature_names has {len(given)} names, but X has {n_columns} columns")
    if names is not None and names != given:
        raise ValueError("feature_names differ from the column names of X; leave them out")
    return given


def _check_shape(shape):
    """Refuse an empty table."""
    if shape[0] == 0:
        raise ValueError("X has 0 sample(s) while a minimum of 1 is required.")
    if shape[1] == 0:
        # In the words of scikit-learn, except for the number of records.
        raise ValueError("X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")


def _check_names(names, expected):
    """Refuse a frame without the declared columns or with others, in scikit-learn's words."""
    unseen = sorted(set(names) - set(expected))
    absent = sorted(set(expected) - set(names))
    message = ""
    if unseen:
        message += "Feature names unseen at fit time:\n" + _bullets(unseen)
    if absent:
        message += "Feature names seen at fit time, yet now missing:\n" + _bullets(absent)
    if message:
        raise ValueError(
            f"The feature names should match those that were passed during fit.\n{message}"
        )


def _bullets(names):
    """Return lines of names, the first few of many."""
    return "".join(f"- {name}\n" for name in names[:5]) + ("- ...\n" if len(names) > 5 else "")


# Entries


_MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be there


def _is_missing(entry):
    """Tell whether an entry of an object column is missing."""
    if entry is None or type(entry).__name__ in _MISSING_TYPES:
        return True
    if isinstance(entry, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(entry))
    return isinstance(entry, numbers.Number) and bool(entry != entry)


def _real(entry):
    """Return a number as a 64-bit float, a large integer as the largest one."""
    try:
        return float(entry)
    except OverflowError:
        return math.copysign(sys.float_info.max, 1 if entry > 0 else -1)


def _key(entry):
    """Return what categories are compared by: numbers as 64-bit floats, all else as it is.

    Integers are rounded too, so that it makes no difference that one missing value in a column
    turns its integers into floats.
    """
    return _real(entry) if isinstance(entry, (numbers.Real, Decimal)) else entry


def _numbers(column, name):
    """Return a numeric column as 32- or 64-bit floats, missing values as NaN.

    Integers become 64-bit floats before anything else, for the reason given in `_key`.
    """
    if isinstance(column, _Coded):
        values = _numbers(_objects_of([*column.values, None]), name)
        return values[column.codes]
    if column.dtype.kind != "O":
        small = column.dtype.kind == "f" and column.dtype.itemsize <= 4
        return column.astype(np.float32 if small else np.float64, copy=False)
    types = set(map(type, column))
    if any(issubclass(own, (str, bytes)) for own in types):
        raise ValueError(
            f"the numeric column {name!r} holds text; convert it to numbers (missing values as "
            f"NaN), or declare it: categories={{{json.dumps(name)}: [...]}}"
        )
    if types <= {int, float, bool, type(None)}:
        try:
            return column.astype(np.float64)  # None becomes NaN
        except OverflowError:
            pass
    try:
        return np.array([math.nan if _is_missing(v) else _real(v) for v in column])
    except (TypeError, ValueError):
        raise TypeError(_objects(name)) from None


def _objects(name):
    """Return the message about entries that are neither numbers nor text."""
    return (
        f"column {name!r} holds objects, but each argument must be a string or a real number; "
        "convert the column to numbers or to text"
    )


def _check_finite(values, name):
    """Refuse infinite values."""
    if np.isinf(values).any():
        _refuse_infinite(name)


def _refuse_infinite(name):
    raise ValueError(f"column {name!r} holds infinite values; replace them by its bounds or by NaN")


def _look_up(column, values):
    """Return the place of each entry in a list of values, as floats: UNKNOWN, NaN if missing."""
    places = _places(values)
    if isinstance(column, _Coded):
        recode = [_place(value, places) for value in column.values]
        return np.array([*recode, math.nan], dtype=np.float32)[column.codes]
    if column.dtype.kind == "O":
        return _look_up_objects(column, places)
    return _look_up_numbers(column.astype(np.float64), places)


def _places(values):
    """Return the place of each of a list of values, by what they are compared by."""
    return {_key(value): float(place) for place, value in enumerate(values)}


def _number_keys(places):
    """Return the numbers among the keys in order, and their places."""
    keys = sorted(key for key in places if isinstance(key, float))
    return np.array(keys), np.array([places[key] for key in keys])


def _look_up_objects(column, places):
    """Look up the entries of an object column: all at once, and what is not found one by one."""
    entries = column.tolist()
    try:
        found = map({None: math.nan, **places}.get, entries, repeat(UNKNOWN))
        codes = np.fromiter(found, dtype=np.float32, count=len(entries))
    except TypeError:  # an entry without hash
        codes = np.full(len(entries), UNKNOWN, dtype=np.float32)
    for i in np.flatnonzero(codes == UNKNOWN):
        codes[i] = _place(entries[i], places)
    return codes


def _place(entry, places):
    """Look up one entry."""
    if _is_missing(entry):
        return math.nan
    try:
        return places.get(_key(entry), UNKNOWN)
    except TypeError:
        return UNKNOWN


def _look_up_numbers(values, places):
    """Look up the entries of a numeric column by bisection."""
    keys, order = _number_keys(places)
    codes = np.full(values.shape, UNKNOWN, dtype=np.float32)
    if keys.size:
        at = np.minimum(np.searchsorted(keys, values), keys.size - 1)
        known = keys[at] == values
        codes[known] = order[at[known]]
    codes[np.isnan(values)] = math.nan
    return codes


# Messages and the dict form


_MISSING_LABEL = "y holds a missing label (NaN or None); leave out the records without label"
_BOUNDS_FORMS = (
    'bounds must be None, "infer", a pair (lo, hi) for all numeric columns, a pair of arrays '
    "(lows, highs) of equal lengths, or a dict from column to pair"
)
_ASK_CLASSES = (
    "The classes of y are not declared. Write classes=[...] with all labels that y can hold. Or "
    'classes="infer" reads them from the data, which the guarantee does not cover.'
)
_ASK_TARGET = (
    "The bounds of y are not declared. Write target_bounds=(lo, hi) with limits that do not come "
    'from the data. Or target_bounds="infer" reads them from the data, which the guarantee does '
    "not cover."
)
_ASK = {
    "bounds": (
        "The bounds of the numeric columns {names} are not declared. Write bounds={line} with "
        'limits that do not come from the data. Or bounds="infer" reads them from the data, '
        "which the guarantee does not cover.",
        "(lo, hi)",
    ),
    "categories": (
        "The categories of the text columns {names} are not declared. Write categories={line} "
        'with all values of interest. Or categories="infer" reads them from the data, which '
        "the guarantee does not cover.",
        "[...]",
    ),
    "type": (
        "The type of the columns {names} is not clear. Name them in bounds or in categories: "
        "bounds={line}.",
        "(lo, hi)",
    ),
}


def _ask(what, names):
    """Return the paragraph that asks for declarations and shows the line to write."""
    text, placeholder = _ASK[what]
    line = ", ".join(f"{json.dumps(name)}: {placeholder}" for name in names)
    return text.format(names=", ".join(map(repr, names)), line="{" + line + "}")


def _is_infer(parameter):
    """Tell whether a parameter asks to read the data; other text is refused."""
    if isinstance(parameter, str) and parameter != "infer":
        raise ValueError('the only text that bounds, categories and classes take is "infer"')
    return isinstance(parameter, str)


def _is_whole(declaration):
    """Tell the dict of `Domain.to_dict` from a mere declaration of columns."""
    version = declaration.get("version")
    if not isinstance(version, int):
        return False
    if version != FORMAT_VERSION:
        raise ValueError("the declaration has a format version that this lumberjack cannot read")
    return True


def _features_of(declaration):
    """Return the declaration of columns in a dict of either kind."""
    if not _is_whole(declaration):
        return declaration
    if not isinstance(declaration.get("features"), Mapping):
        raise TypeError("the declaration needs a dict of columns as its entry features")
    return declaration["features"]


def _parse_entry(name, entry):
    """Return "bounds" or "categories" and the values of one entry of a declaration."""
    if isinstance(entry, Mapping):
        if len(entry) == 1 and next(iter(entry)) in ("bounds", "categories"):
            kind, values = next(iter(entry.items()))
            if isinstance(values, (list, tuple)):
                return kind, values
    elif isinstance(entry, (list, tuple)) and entry:
        if all(isinstance(value, str) for value in entry):
            return "categories", entry
        real = [isinstance(v, numbers.Real) and not isinstance(v, bool) for v in entry]
        if len(entry) == 2 and all(real):
            return "bounds", entry
    raise ValueError(
        f'the declaration of {name!r} must be [lo, hi], a list of text, {{"bounds": [lo, hi]}} or '
        f'{{"categories": [...]}}'
    )


def _short(end):
    """Return a 32-bit float as the shortest number that rounds to it."""
    value = float(str(end))
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _listed(values, most=6):
    """Return values in one line, the first few of many."""
    values = list(values)
    return ", ".join(map(repr, values[:most])) + (", ..." if len(values) > most else "")


def _frozen(array):
    """Make an array read-only."""
    array.setflags(write=False)
    return array
