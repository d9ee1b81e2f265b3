"""What is public about a table, and the table encoded by it.

A private forest may not look for ranges, categories or classes in the records that it protects, so
they are declared. :class:`Domain` holds the declarations and nothing of the data; it turns a frame
or an array into one matrix of 32-bit floats, each record by itself.

Errors speak to the owner of the table: they name the column and the remedy, never a value, a row or
a number of rows. They depend on the data and lie outside the privacy guarantee.
"""

from __future__ import annotations

import json
import math
import numbers
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning

from lumberjack._domain import Codebook
from lumberjack.frames import (
    UNKNOWN,
    Coded,
    Column,
    Table,
    as_array,
    as_real,
    dates_message,
    holds_dates,
    is_missing,
    is_pandas,
    key_of,
    length,
    listed,
    look_up,
    number_keys,
    objects_message,
    part_of,
    places_of,
    plain_column,
    present_types,
    read_numbers,
    read_pandas,
    read_table,
)

__all__ = ["Domain", "PrivacyLeakWarning"]

FORMAT_VERSION = 1
MOST_LINES = 40  # columns that are shown
_CHUNK = 2**16  # labels that are looked up at a time, which bounds the temporary arrays
FLOAT32_MAX = float(np.finfo(np.float32).max)

Pair: TypeAlias = tuple[float, float]


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

    feature_names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    categories: tuple[Any, ...]  # of tuples, None for a numeric column
    classes: Any = None  # an array, None for a regression
    inferred: tuple[str, ...] = ()
    named: bool = True
    target_bounds: Any = None  # a pair, None for a classification

    def __post_init__(self) -> None:
        _check_fields(self)
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
        X: Any,
        y: Any,
        *,
        bounds: Any = None,
        categories: Any = None,
        classes: Any = None,
        target_bounds: Any = None,
        categorical_features: Any = "from_dtype",
        feature_names: Iterable[str] | None = None,
        regression: bool = False,
    ) -> Domain:
        """Read the declarations for a table.

        Columns are numeric or categorical. Those named in `categories` and those of a categorical
        dtype are categorical (a list in `categories` goes before that of the dtype); those named in
        `bounds` are numeric; for the others the type decides. Columns of booleans are numeric with
        the bounds 0 and 1 unless `bounds` names them or holds arrays. `categorical_features`
        decides instead of the types.

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
        categorical_features : "from_dtype", array-like or None, default="from_dtype"
            Which columns are categorical: "from_dtype" goes by the types and by `categories`; a
            mask, or a list of numbers or names, or None for no column, says which are, and all
            others are numeric. The categories of those with a categorical dtype and of booleans are
            known; those of others must be in `categories`.
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
        table = read_table(X, feature_names)
        draft = _draft(table, bounds, categories, categorical_features)
        target = _settle_target(y, table.n_records, classes, target_bounds, regression)
        return _finish(table, draft, target)

    @classmethod
    def from_frame(
        cls,
        X: Any,
        y: Any = None,
        *,
        bounds: Any = None,
        categories: Any = None,
        classes: Any = None,
        target_bounds: Any = None,
        categorical_features: Any = "from_dtype",
        regression: bool = False,
    ) -> Domain:
        """Read the domain from a public table, such as a published sample.

        What `bounds`, `categories` and `classes` declare goes before what the table holds. Nothing
        of this is private, so nothing counts as inferred: do not pass the records to be protected.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Public records. Their range, or what `bounds` says, should be as wide as that of the
            records to come: values beyond are taken for the bound.
        y : array-like of shape (n_samples,) or None, default=None
            Public labels. Without them the domain has no classes but those declared.
        bounds, categories, classes, target_bounds, categorical_features
            As in :meth:`declare`, each for as many columns as it names.
        regression : bool, default=False
            Whether `y` is a number.

        Returns
        -------
        Domain

        Examples
        --------
        >>> published = {"age": [31, 64, 18], "sex": ["Male", "Female", "Male"]}
        >>> import pandas as pd
        >>> X, y = pd.DataFrame(published), ["no", "yes", "no"]
        >>> Domain.from_frame(X, y, bounds={"age": (17, 90)})
        Domain(
          age: 17 to 90
          sex: 'Female', 'Male'
          classes: 'no', 'yes'
        )
        """
        table = read_table(X)
        draft = _draft(table, bounds, categories, categorical_features, rest="infer")
        target = _Target(None, None, [], [])
        regression = regression or target_bounds is not None
        if y is not None or classes is not None or target_bounds is not None:
            if regression:
                target_bounds = "infer" if target_bounds is None else target_bounds
            else:
                classes = "infer" if classes is None else classes
            labels = [0] * table.n_records if y is None else y
            target = _settle_target(labels, table.n_records, classes, target_bounds, regression)
        return _finish(table, draft._replace(inferred=[]), target._replace(inferred=[]))

    def match(
        self,
        X: Any,
        y: Any,
        *,
        classes: Any = None,
        target_bounds: Any = None,
        regression: bool = False,
    ) -> Domain:
        """Fit the domain to a table: its columns in their order, and its target.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            The columns of a frame must be those of the domain; of an array, as many. No value is
            read.
        y : array-like of shape (n_samples,)
            Read only for "infer".
        classes, target_bounds
            As in :meth:`declare`, if the domain declares none.
        regression : bool, default=False
            Whether `y` is a number.

        Returns
        -------
        Domain

        Raises
        ------
        ValueError
            If columns differ, or classes (bounds of the target) are declared neither here nor in
            the domain, or differently in both.

        Examples
        --------
        >>> domain = Domain.from_dict({"age": [17, 90], "sex": ["Female", "Male"]})
        >>> import pandas as pd
        >>> X = pd.DataFrame({"sex": ["Male"], "age": [30]})
        >>> domain.match(X, ["yes"], classes=["no", "yes"])
        Domain(
          sex: 'Female', 'Male'
          age: 17 to 90
          classes: 'no', 'yes'
        )
        """
        table = read_table(X)
        places = self._places_in(table)
        if regression:
            target_bounds = _only_one("target_bounds", target_bounds, self.target_bounds)
        else:
            classes = _only_one("classes", classes, self.classes)
        target = _settle_target(y, table.n_records, classes, target_bounds, regression)
        draft = _Draft(
            self.lower[places],
            self.upper[places],
            [self.categories[j] for j in places],
            [*self.inferred],
            [],
        )
        names = tuple(self.feature_names[j] for j in places)
        table = table._replace(feature_names=names, names=names if self.named else None)
        return _finish(table, draft, target)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self.feature_names)

    @property
    def is_categorical(self) -> np.ndarray:
        """Boolean array, True for the categorical columns."""
        return np.array([own is not None for own in self.categories], dtype=bool)

    @property
    def n_categories(self) -> np.ndarray:
        """Number of categories of each column as an int32 array, 0 for the numeric columns."""
        return np.array([len(own or ()) for own in self.categories], dtype=np.int32)

    def encode(
        self,
        X: Any,
        *,
        layout: str = "columns",
        caller: str = "Domain",
        spare: int = 0,
        n_threads: int = 1,
    ) -> np.ndarray:
        """Turn a table into one matrix of 32-bit floats.

        A numeric value becomes the nearest 32-bit float; one beyond their range becomes the bound
        on its side. A category becomes its place in the list of categories, -1 if it is not there.
        Missing values (None, NaN, NA, NaT) become NaN. Each entry depends on its own value alone.

        Parameters
        ----------
        X : array-like, sparse matrix or frame of shape (n_samples, n_features)
            The columns of a frame are found by name, in any order. A sparse matrix is made dense,
            column by column.
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
        table = read_table(X)
        places = self._find_columns(table, caller)
        encoded, rows = _empty_codes(table.n_records, self.n_features, layout, spare)
        for j, place in enumerate(places):
            self._encode_column(j, table.read(place), rows[:, j])
        return encoded

    def encode_classes(
        self, y: Any, *, n_records: int | None = None, allow_unknown: bool = False
    ) -> np.ndarray:
        """Turn labels into places in `classes`.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels, each of them in `classes`.
        n_records : int or None, default=None
            How many there must be.
        allow_unknown : bool, default=False
            Whether a label that is not in `classes`, but of their kind, becomes -1 instead of an
            error.

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
        labels = read_labels(y, n_records)
        codes = np.empty(length(labels), dtype=np.int32)
        known = self.classes.tolist()
        if allow_unknown:
            _refuse_other_kind(labels, known)
        for start in range(0, len(codes), _CHUNK):
            part = look_up(part_of(labels, start, start + _CHUNK), known)
            if np.isnan(part).any():
                raise ValueError(_MISSING_LABEL)
            if (part == UNKNOWN).any() and not allow_unknown:
                _refuse_other_kind(labels, known)
                raise ValueError(
                    "y holds a label that is not in classes; add it there, or leave out its records"
                )
            codes[start : start + _CHUNK] = part
        return codes

    def encode_target(self, y: Any, unit: int) -> np.ndarray:
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
        values = self.read_target(y)
        share = (np.clip(values, low, high) - low) / (high - low)
        return np.floor(share * unit + 0.5).astype(np.int32)

    @staticmethod
    def read_target(y: Any, n_records: int | None = None) -> np.ndarray:
        """Read a regression target as it is, missing and infinite values refused.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
        n_records : int or None, default=None
            How many there must be.

        Returns
        -------
        float64 ndarray of shape (n_samples,)
        """
        return _target_numbers(read_labels(y, n_records))

    @staticmethod
    def parse_declaration(
        declaration: Mapping[str, Any],
    ) -> tuple[dict[str, tuple], dict[str, list]]:
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
    def from_dict(
        cls, declaration: Mapping[str, Any], *, classes: Any = None, target_bounds: Any = None
    ) -> Domain:
        """Make a domain without a table.

        Parameters
        ----------
        declaration : dict
            A declaration as in :meth:`parse_declaration`, its columns in order.
        classes : array-like or None, default=None
            The class labels; by default those of `declaration`, if it is from :meth:`to_dict`.
        target_bounds : (float, float) or None, default=None
            Bounds of the target of a regression; by default those of `declaration`, likewise.

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
        if target_bounds is None:
            target_bounds = whole.get("target_bounds")
        if _is_infer(classes) or _is_infer(target_bounds):
            raise ValueError('"infer" needs a table; give the list of classes, or the bounds')
        positions = {name: j for j, name in enumerate(names)}
        pairs = {names[j]: pair for j, pair in _bounds_dict(bounds, positions).items()}
        values = {names[j]: own for j, own in _categories_dict(categories, positions).items()}
        return cls(
            tuple(names),
            np.array([pairs.get(name, (0.0, 0.0))[0] for name in names]),
            np.array([pairs.get(name, (0.0, 0.0))[1] for name in names]),
            tuple(values.get(name) for name in names),
            None if classes is None else _check_classes(classes),
            whole.get("inferred", ()),
            whole.get("named", True),
            target_bounds,
        )

    def to_dict(self) -> dict[str, Any]:
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

    @classmethod
    def from_json(
        cls, source: str | PathLike[str], *, classes: Any = None, target_bounds: Any = None
    ) -> Domain:
        """Read a domain from JSON.

        Parameters
        ----------
        source : str or path
            A file, or the text itself, which begins with a brace. It holds what :meth:`from_dict`
            takes.
        classes, target_bounds
            As in :meth:`from_dict`.

        Returns
        -------
        Domain

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not JSON, or names a column twice, or does not declare a domain.

        Examples
        --------
        >>> domain = Domain.from_json('{"age": [17, 90], "sex": ["Female", "Male"]}')
        >>> Domain.from_json(domain.to_json()) == domain
        True
        """
        if isinstance(source, str) and source.lstrip().startswith("{"):
            text = source
        else:
            try:
                text = Path(source).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ValueError("the file of the domain is not JSON: it is not UTF-8") from None
        try:
            declaration = json.loads(
                text, object_pairs_hook=unique_keys("the domain names a column twice")
            )
        except json.JSONDecodeError as error:
            raise ValueError(f"the domain is not valid JSON: {error}") from None
        except RecursionError:
            raise ValueError("the domain is nested too deeply") from None
        return cls.from_dict(declaration, classes=classes, target_bounds=target_bounds)

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Write the domain as JSON.

        Parameters
        ----------
        path : path or None, default=None
            A file to write as well.

        Returns
        -------
        str
            What :meth:`from_json` reads.
        """
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = []
        for j, name in enumerate(self.feature_names[:MOST_LINES]):
            if self.categories[j] is None:
                lo, hi = _short(self.lower[j]), _short(self.upper[j])
                lines.append(f"{name}: {lo} to {hi}")
            else:
                lines.append(f"{name}: {listed(self.categories[j])}")
        if self.n_features > MOST_LINES:
            lines.append(f"... {self.n_features - MOST_LINES} more columns")
        if self.classes is not None:
            lines.append(f"classes: {listed(self.classes.tolist())}")
        if self.target_bounds is not None:
            lines.append("y: {} to {}".format(*map(_short, self.target_bounds)))
        if self.inferred:
            lines.append(f"read from the data: {', '.join(self.inferred)}")
        return "\n  ".join(["Domain(", *lines]) + "\n)"

    def _entry(self, j: int) -> list | dict[str, list]:
        """Return the entry of column j in a declaration."""
        values = self.categories[j]
        if values is None:
            return [_short(self.lower[j]), _short(self.upper[j])]
        if all(isinstance(value, str) for value in values):
            return list(values)
        return {"categories": list(values)}

    @cached_property
    def _codebook(self) -> Any:
        """The domain as the kernel for arrays of floats reads it."""
        keys, places = [], []
        for values in self.categories:
            own = (None, None) if values is None else number_keys(places_of(values))
            keys.append(own[0])
            places.append(own[1])
        return Codebook(self.lower, self.upper, keys, places)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_codebook"}

    def _find_columns(self, table: Table, caller: str) -> Sequence[int]:
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

    def _places_in(self, table: Table) -> list[int]:
        """Return the place in the domain of each column of a table."""
        if not (self.named and table.names is not None):
            if table.n_columns != self.n_features:
                raise ValueError(
                    f"X has {table.n_columns} columns, but the domain declares {self.n_features}"
                )
            return list(range(self.n_features))
        undeclared = [name for name in table.names if name not in self.feature_names]
        absent = [name for name in self.feature_names if name not in table.names]
        if undeclared:
            raise ValueError(
                f"the domain does not declare the columns {listed(undeclared)}; add them to it, or "
                "take them out of X"
            )
        if absent:
            raise ValueError(
                f"X lacks the columns {listed(absent)}, which the domain declares; take them out "
                "of it, or add them to X"
            )
        return [self.feature_names.index(name) for name in table.names]

    def _encode_column(self, j: int, column: Column, out: np.ndarray) -> None:
        """Write the encoded column j to `out`."""
        if self.categories[j] is not None:
            out[:] = look_up(column, self.categories[j])
            return
        values = _feature_numbers(column, self.feature_names[j])
        with np.errstate(over="ignore"):
            out[:] = values
        beyond = np.isinf(out)
        if beyond.any():
            if np.isinf(values).any():
                _refuse_infinite(self.feature_names[j])
            out[beyond] = np.where(values[beyond] > 0, self.upper[j], self.lower[j])


# Declarations: from parameters to bounds and categories by position


class _Draft(NamedTuple):
    """What `bounds` and `categories` and the types of the columns amount to."""

    lower: Any
    upper: Any
    categories: list[tuple | None]
    inferred: list[str]  # what was read from the data
    undeclared: list[str]  # one paragraph for each kind of declaration that is absent


def _draft(
    table: Table,
    bounds: Any,
    categories: Any,
    categorical_features: Any = "from_dtype",
    rest: str | None = None,
) -> _Draft:
    """Settle each column of a table as numeric or categorical.

    What is not declared is read from the table if `rest` is "infer".
    """
    values = _categories_dict(categories, table.positions)
    pairs = _bounds_dict(bounds, table.positions) if isinstance(bounds, Mapping) else {}
    names = table.feature_names
    _refuse_both([names[j] for j in sorted(pairs.keys() & values.keys())])
    chosen = _categorical_positions(categorical_features, table)
    open_columns = [j for j in range(table.n_columns) if j not in pairs and j not in values]
    kinds = {j: _kind(table.read(j), names[j]) for j in open_columns}
    if not table.typed:
        # A list has no type but that of its values, and these must not decide on the bounds.
        kinds = {j: "numeric" if kind == "bool" else kind for j, kind in kinds.items()}
    if chosen is not None:
        _refuse_contradictions(chosen, pairs, values, names)
        kinds = {j: _chosen_kind(kind, j in chosen, names[j]) for j, kind in kinds.items()}
    default, by_place = _bounds_default(bounds, table, kinds)
    default = rest if default is None else default
    pairs.update(by_place)
    infer_text = rest == "infer" or _is_infer(categories)
    inferred: list[str] = []
    absent: dict[str, list[str]] = {}
    for j, kind in kinds.items():
        if kind == "categorical":
            values[j] = _check_categories(_known_values(table.read(j)), names[j])
        elif kind == "text" or (kind == "empty" and infer_text and j not in pairs):
            _settle_text(table, j, infer_text, values, inferred, absent)
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


def _categorical_positions(categorical_features: Any, table: Table) -> set[int] | None:
    """Return the positions of the columns that are said to be categorical; None: by type."""
    if categorical_features is None:
        return set()
    if isinstance(categorical_features, str):
        if categorical_features == "from_dtype":
            return None
        raise ValueError(_CATEGORICAL_FORMS)
    entries = np.asarray(categorical_features, dtype=object)
    if entries.ndim != 1 or isinstance(categorical_features, Mapping):
        raise TypeError(_CATEGORICAL_FORMS)
    entries = entries.tolist()
    if entries and all(isinstance(entry, (bool, np.bool_)) for entry in entries):
        if len(entries) != table.n_columns:
            raise ValueError(
                f"the mask categorical_features has {len(entries)} entries; give one for each of "
                f"the {table.n_columns} columns of X"
            )
        return {j for j, entry in enumerate(entries) if entry}
    if any(isinstance(entry, (bool, float)) for entry in entries):
        raise TypeError(_CATEGORICAL_FORMS)
    found: dict[int, bool] = {}
    numbered = {j: j for j in range(table.n_columns)}
    for entry in entries:
        positions = table.positions if isinstance(entry, str) else numbered
        found[_position(entry, positions, "categorical_features", found)] = True
    return set(found)


def _refuse_contradictions(
    chosen: set[int], pairs: dict[int, Pair], values: dict[int, tuple], names: Sequence[str]
) -> None:
    """Refuse declarations that `categorical_features` contradicts."""
    _refuse_both([names[j] for j in sorted(pairs.keys() & chosen)], "categorical_features")
    numeric = [names[j] for j in sorted(values.keys() - chosen)]
    if numeric:
        raise ValueError(
            f"categories names {listed(numeric)}, which categorical_features does not; name it in "
            "both or in none"
        )


def _chosen_kind(kind: str, is_categorical: bool, name: str) -> str:
    """Return the kind of a column of which `categorical_features` says what it is."""
    if is_categorical:
        return "categorical" if kind in ("categorical", "bool") else "text"
    if kind == "text":
        raise ValueError(
            f"column {name!r} holds text, but categorical_features does not name it; name it "
            "there, or convert it to numbers"
        )
    return "bool" if kind == "bool" else "numeric"


def _known_values(column: Column) -> list[Any]:
    """Return the categories that the type of a column declares."""
    return column.values if isinstance(column, Coded) else [False, True]


def _settle_text(
    table: Table,
    j: int,
    infer: bool,
    values: dict[int, tuple],
    inferred: list[str],
    absent: dict[str, list[str]],
) -> None:
    """Find the categories of a column of text, or note that they are absent."""
    name = table.feature_names[j]
    if infer:
        values[j] = _infer_categories(table.read(j), name)
        inferred.append(f"categories of {name}")
    else:
        absent.setdefault("categories", []).append(name)


def _settle_number(
    table: Table,
    j: int,
    kind: str,
    default: Any,
    pairs: dict[int, Pair],
    inferred: list[str],
    absent: dict[str, list[str]],
) -> None:
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


def _kind(column: Column, name: str) -> str:
    """Return the kind of a column that no parameter names.

    An object column is of a kind when all its present entries are; it is "empty" without any, and
    "unclear" if numbers and booleans are mixed or other objects are there.
    """
    if isinstance(column, Coded):
        return column.kind
    if column.dtype.kind != "O":
        return "bool" if column.dtype.kind == "b" else "numeric"
    types = present_types(column)
    if any(issubclass(own, (str, bytes)) for own in types):
        return "text"
    if not types:
        return "empty"
    if all(issubclass(own, (bool, np.bool_)) for own in types):
        return "bool"
    if holds_dates(types):
        raise TypeError(dates_message(f"column {name!r}"))
    numeric = all(issubclass(own, (numbers.Real, Decimal)) and own is not bool for own in types)
    return "numeric" if numeric else "unclear"


def _bounds_dict(bounds: Mapping[Any, Any], positions: Mapping[Any, int]) -> dict[int, Pair]:
    """Return the pairs of a dict of bounds by position."""
    found: dict[int, Pair] = {}
    for key, pair in bounds.items():
        j = _position(key, positions, "bounds", found)
        found[j] = _check_pair(pair, f"bounds of {key!r}")
    return found


def _bounds_default(
    bounds: Any, table: Table, kinds: dict[int, str]
) -> tuple[Any, dict[int, Pair]]:
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
        places: Sequence[int] = range(table.n_columns)
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


def _check_pair(pair: Any, what: str) -> Pair:
    """Return a pair of bounds as floats."""
    if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
        raise TypeError(f"{what} must be a pair (lo, hi) of numbers")
    if not all(isinstance(end, numbers.Real) for end in pair):
        raise TypeError(f"{what} must be a pair (lo, hi) of numbers")
    lo, hi = (as_real(end) for end in pair)
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise ValueError(f"{what} must be finite: give the limits that the values can reach")
    if lo > hi:
        raise ValueError(f"{what} are reversed: the lower one comes first")
    return lo, hi


def _round_bounds(ends: Any) -> np.ndarray:
    """Round bounds to 32-bit floats, as the values are, within the range of those."""
    return np.clip(np.asarray(ends, dtype=np.float64), -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)


def _categories_dict(categories: Any, positions: Mapping[Any, int]) -> dict[int, tuple]:
    """Return the lists of a dict of categories by position."""
    if categories is None or _is_infer(categories):
        return {}
    if not isinstance(categories, Mapping):
        raise TypeError(
            'categories must be None, "infer" or a dict from column to list of categories'
        )
    found: dict[int, tuple] = {}
    for key, values in categories.items():
        j = _position(key, positions, "categories", found)
        found[j] = _check_categories(values, key)
    return found


def _check_categories(values: Any, name: Any) -> tuple:
    """Return a list of categories as a tuple of text, numbers and booleans."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise TypeError(f"the categories of {name!r} must be a list")
    in_order = not isinstance(values, (set, frozenset))
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if any(map(is_missing, values)):
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
    if len({key_of(value) for value in values}) < len(values):
        raise ValueError(
            f"the categories of {name!r} repeat one (numbers are compared as 64-bit floats); list "
            "each once"
        )
    return tuple(values if in_order else sorted(values, key=_numbers_first))


def _numbers_first(value: Any) -> tuple[bool, Any]:
    """Return what categories of several types are sorted by."""
    return isinstance(value, str), value


def _position(key: Any, positions: Mapping[Any, int], parameter: str, found: Container[int]) -> int:
    """Return the position of a column, by name or number, that a parameter names once."""
    if key not in positions:
        names = [name for name in positions if isinstance(name, str)]
        columns = listed(names, 20) if names else f"0 to {len(positions) - 1}"
        raise ValueError(
            f"{parameter} names {key!r}, which is not a column of X; its columns are {columns}"
        )
    if positions[key] in found:
        raise ValueError(f"{parameter} names the column {key!r} twice")
    return positions[key]


def _refuse_both(names: Sequence[str], parameter: str = "categories") -> None:
    """Refuse columns that are declared both numeric and categorical."""
    if names:
        raise ValueError(
            f"both bounds and {parameter} name {listed(names)}; a column is either numeric or "
            "categorical"
        )


def _feature_numbers(column: Column, name: str) -> np.ndarray:
    """Return a numeric column as floats."""
    remedy = (
        "convert it to numbers (missing values as NaN), or declare it: "
        f"categories={{{json.dumps(name)}: [...]}}"
    )
    return read_numbers(column, f"column {name!r}", remedy)


def _refuse_infinite(name: str) -> NoReturn:
    raise ValueError(f"column {name!r} holds infinite values; replace them by its bounds or by NaN")


def _infer_bounds(column: Column, name: str) -> Pair:
    """Read the bounds of a numeric column from its values."""
    values = _feature_numbers(column, name)
    if np.isinf(values).any():
        _refuse_infinite(name)
    values = values[~np.isnan(values)]
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def _infer_categories(column: Column, name: str) -> tuple:
    """Read the categories of a column of text from its entries, numbers first."""
    try:
        present = {key_of(entry) for entry in set(column) if not is_missing(entry)}
    except TypeError:
        raise TypeError(objects_message(f"column {name!r}", ())) from None
    if not all(isinstance(entry, (str, float)) for entry in present):
        raise TypeError(objects_message(f"column {name!r}", set(map(type, present))))
    ordered = sorted(present, key=_numbers_first)
    # A column without entries stays categorical: whatever comes later is an unknown category.
    return _check_categories(ordered or [""], name)


def _warn_leak(inferred: Sequence[str]) -> None:
    """Warn of what was read from the data."""
    warn_user(
        f"read from the data: {', '.join(inferred)}. The guarantee takes this for public and does "
        "not cover it; declare it instead, from knowledge that does not come from the data.",
        PrivacyLeakWarning,
    )


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line outside this package that asked for it."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("lumberjack."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# Classes and labels


class _Target(NamedTuple):
    """What is declared of the target."""

    classes: np.ndarray | None
    bounds: Pair | None
    inferred: list[str]
    undeclared: list[str]


def _settle_target(
    y: Any, n_records: int | None, classes: Any, target_bounds: Any, regression: bool
) -> _Target:
    """Find the classes, or the bounds of the target of a regression."""
    labels = read_labels(y, n_records)
    if regression:
        pair = _read_target_bounds(target_bounds, labels)
        inferred = ["bounds of y"] if _is_infer(target_bounds) else []
        return _Target(None, pair, inferred, [_ASK_TARGET] if pair is None else [])
    known = _read_classes(classes, labels)
    inferred = ["classes"] if _is_infer(classes) else []
    return _Target(known, None, inferred, [_ASK_CLASSES] if known is None else [])


def _finish(table: Table, draft: _Draft, target: _Target) -> Domain:
    """Return the domain, or refuse what is not declared; warn of what was inferred."""
    undeclared = draft.undeclared + target.undeclared
    if undeclared:
        raise ValueError("\n".join(undeclared))
    inferred = draft.inferred + target.inferred
    if inferred:
        _warn_leak(inferred)
    return Domain(
        table.feature_names,
        draft.lower,
        draft.upper,
        tuple(draft.categories),
        target.classes,
        tuple(inferred),
        table.names is not None,
        target.bounds,
    )


def _only_one(name: str, given: Any, declared: Any) -> Any:
    """Return a parameter or what the domain declares instead; both must be the same."""
    if given is None or declared is None:
        return declared if given is None else given
    check: Callable[[Any], Any] = _check_classes if name == "classes" else _check_target_bounds
    if _is_infer(given) or not np.array_equal(check(given), declared):
        raise ValueError(f"{name} and the domain declare different {name}; leave one of them out")
    return declared


def _read_classes(classes: Any, labels: Column) -> np.ndarray | None:
    """Return the sorted classes, or None if they are not declared."""
    if classes is None:
        return None
    if not _is_infer(classes):
        return _check_classes(classes)
    found = _infer_classes(labels)
    if len(found) < 2:
        raise ValueError("y holds one class only; a classifier needs at least two classes")
    return found


def _read_target_bounds(target_bounds: Any, labels: Column) -> Pair | None:
    """Return the bounds of the target, or None if they are not declared."""
    if not _is_infer(target_bounds):
        return _check_target_bounds(target_bounds)
    values = _target_numbers(labels)
    low, high = float(values.min()), float(values.max())
    if low == high:
        raise ValueError(
            "target_bounds cannot be read from one sample, or from one value of y; declare them"
        )
    return _check_target_bounds((low, high))


def _check_target_bounds(target_bounds: Any) -> Pair | None:
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


def _target_numbers(labels: Column) -> np.ndarray:
    """Return the target as 64-bit floats."""
    values = read_numbers(labels, "y", "a regression needs a number for each record")
    if np.isnan(values).any():
        raise ValueError("y holds a missing value (NaN); leave out its records")
    if np.isinf(values).any():
        raise ValueError(
            "y holds infinite values; replace them by target_bounds, or leave them out"
        )
    return values.astype(np.float64)


def _check_classes(classes: Any) -> np.ndarray:
    """Return declared classes as a sorted array."""
    if isinstance(classes, (str, bytes, Mapping)) or not hasattr(classes, "__iter__"):
        raise TypeError('classes must be a list of labels or "infer"')
    values = [value.item() if isinstance(value, np.generic) else value for value in classes]
    if any(map(is_missing, values)):
        raise ValueError("classes holds a missing value; list the labels only")
    _check_label_types({type(value) for value in values}, "classes")
    found = _sorted_labels(values)
    if len(found) < len(values):
        raise ValueError("classes repeats a label; list each once")
    if len(found) < 2:
        raise ValueError("classes declares less than two classes; list all that y can hold")
    return found


def _infer_classes(labels: Column) -> np.ndarray:
    """Read the classes from labels."""
    if isinstance(labels, Coded):
        if (labels.codes < 0).any():
            raise ValueError(_MISSING_LABEL)
        values = [labels.values[code] for code in np.unique(labels.codes)]
        _check_label_types({type(value) for value in values}, "y")
        return _sorted_labels(values)
    if labels.dtype.kind != "O":
        return _sorted_labels(labels)
    if any(map(is_missing, labels)):
        raise ValueError(_MISSING_LABEL)
    _check_label_types(set(map(type, labels)), "y")
    return _sorted_labels(set(labels))


def _check_label_types(types: Iterable[type], what: str) -> None:
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


def _sorted_labels(values: Any) -> np.ndarray:
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


def _refuse_other_kind(labels: Column, known: list[Any]) -> None:
    """Refuse text where classes are numbers, and the other way round."""
    types = {type(v) for v in labels.values} if isinstance(labels, Coded) else {labels.dtype.type}
    if types == {np.object_}:
        types = present_types(labels)
    for what, text in (("text", str), ("numbers", (numbers.Real, np.bool_))):
        if any(issubclass(own, text) for own in types) and not isinstance(known[0], text):
            encoded = (
                "; a meta-estimator that encodes labels, such as VotingClassifier, needs classes="
                f"{list(range(len(known))) if len(known) < 6 else 'range(n_classes)'}"
            )
            raise ValueError(
                f"y holds {what}, which the classes are not; convert it to their type"
                + (encoded if what == "numbers" else "")
            )


def read_labels(y: Any, n_records: int | None = None) -> Column:
    """Return labels or targets as a column, checked against the number of records.

    A column that it returned is returned as it is.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if issparse(y):
        raise TypeError("y is sparse; pass a dense array of one label for each record")
    labels = _read_target(y)
    if n_records is not None and length(labels) != n_records:
        raise ValueError("X and y differ in their numbers of records; give one label for each")
    return labels


def _read_target(y: Any) -> Column:
    """Return one-dimensional labels, or the column of a table of one column, as a column."""
    if isinstance(y, Coded):
        return y
    if hasattr(type(y), "columns"):
        table = read_table(y)
        _check_one_column(table.n_columns)
        return table.read(0)
    if is_pandas(y):
        return plain_column(read_pandas(y), "y")
    array = as_array(y, "y")
    if array.ndim == 2:
        _check_one_column(array.shape[1])
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError("y should be a 1d array of one label for each record")
    return plain_column(array, "y")


def _check_one_column(n_columns: int) -> None:
    """Refuse several targets, and warn like scikit-learn of a table of one."""
    if n_columns != 1:
        raise ValueError("y should be a 1d array; several targets are not supported")
    warn_user(
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y "
        "to (n_samples, ), for example using ravel().",
        DataConversionWarning,
    )


# Columns and rows of the encoded matrix


def _is_float_array(X: Any, n_features: int) -> bool:
    """Tell a plain array with so many columns, which needs no reading as a table."""
    plain = type(X) is np.ndarray and X.dtype in (np.float32, np.float64)
    return plain and X.ndim == 2 and len(X) > 0 and X.shape[1] == n_features


def _empty_codes(
    n_records: int, n_features: int, layout: str, spare: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return an encoded matrix to be filled, and a view by rows of what the table fills."""
    if layout == "rows":
        encoded = np.empty((n_records, n_features + spare), dtype=np.float32)
        return encoded, encoded[:, :n_features]
    encoded = np.empty((n_features + spare, n_records), dtype=np.float32)
    return encoded, encoded[:n_features].T


def _check_names(names: Sequence[str], expected: Sequence[str]) -> None:
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


def _bullets(names: Sequence[str]) -> str:
    """Return lines of names, the first few of many."""
    return "".join(f"- {name}\n" for name in names[:5]) + ("- ...\n" if len(names) > 5 else "")


# Messages and the dict form


_MISSING_LABEL = "y holds a missing label (NaN or None); leave out the records without label"
_BOUNDS_FORMS = (
    'bounds must be None, "infer", a pair (lo, hi) for all numeric columns, a pair of arrays '
    "(lows, highs) of equal lengths, or a dict from column to pair"
)
_CATEGORICAL_FORMS = (
    'categorical_features must be "from_dtype", None, a mask with one boolean for each column, or '
    "a list of numbers or names of columns"
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
        "The categories of the columns {names} are not declared. Write categories={line} "
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


def _ask(what: str, names: Sequence[str]) -> str:
    """Return the paragraph that asks for declarations and shows the line to write."""
    text, placeholder = _ASK[what]
    line = ", ".join(f"{json.dumps(name)}: {placeholder}" for name in names)
    return text.format(names=", ".join(map(repr, names)), line="{" + line + "}")


def _check_fields(domain: Domain) -> None:
    """Refuse what a file or a caller gives that is no domain."""
    names = tuple(domain.feature_names)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise TypeError("the columns of a domain must have distinct names of text")
    if not len(names) == len(domain.lower) == len(domain.upper) == len(domain.categories):
        raise ValueError("a domain needs bounds and categories, or None, for each of its columns")
    inferred = domain.inferred
    if isinstance(inferred, str) or not isinstance(inferred, Iterable):
        raise TypeError("inferred must be a list of text")
    if not all(isinstance(own, str) for own in inferred):
        raise TypeError("inferred must be a list of text")
    if not isinstance(domain.named, bool):
        raise TypeError("named must be true or false")


def as_domain(given: Any) -> Domain:
    """Return a domain from what the parameter `domain` of an estimator can be."""
    if isinstance(given, Domain):
        return given
    if isinstance(given, Mapping):
        return Domain.from_dict(given)
    if isinstance(given, (str, PathLike)):
        return Domain.from_json(given)
    raise TypeError("domain must be a Domain, a dict as Domain.from_dict takes, or a JSON file")


def unique_keys(message: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a hook for `json.loads` that refuses an object with a key twice."""

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError(message)
        return found

    return as_dict


def _is_infer(parameter: Any) -> bool:
    """Tell whether a parameter asks to read the data; other text is refused."""
    if isinstance(parameter, str) and parameter != "infer":
        raise ValueError('the only text that bounds, categories and classes take is "infer"')
    return isinstance(parameter, str)


def _is_whole(declaration: Mapping[str, Any]) -> bool:
    """Tell the dict of `Domain.to_dict` from a mere declaration of columns."""
    version = declaration.get("version")
    if not isinstance(version, int):
        return False
    if version != FORMAT_VERSION:
        raise ValueError("the declaration has a format version that this lumberjack cannot read")
    return True


def _features_of(declaration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the declaration of columns in a dict of either kind."""
    if not _is_whole(declaration):
        return declaration
    if not isinstance(declaration.get("features"), Mapping):
        raise TypeError("the declaration needs a dict of columns as its entry features")
    return declaration["features"]


def _parse_entry(name: Any, entry: Any) -> tuple[str, Sequence[Any]]:
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


def _short(end: np.float32 | float) -> int | float:
    """Return a 32-bit float as the shortest number that rounds to it."""
    value = float(str(end))
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _frozen(array: np.ndarray) -> np.ndarray:
    """Make an array read-only."""
    array.setflags(write=False)
    return array
