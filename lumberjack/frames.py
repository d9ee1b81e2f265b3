"""Arrays and frames as columns, and what their entries are compared by.

Arrays, lists, sparse matrices and frames of pandas and of whatever narwhals reads become one form:
a table that is read column by column, each an array of numbers or of objects, or codes of a
categorical type. Nothing here decides what is public; see `lumberjack.domain` for that.
"""

from __future__ import annotations

import datetime
import math
import numbers
import sys
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import issparse

from lumberjack._domain import UNKNOWN_CODE

UNKNOWN = UNKNOWN_CODE


# Tables: arrays and frames as columns


class Coded(NamedTuple):
    """A column of a categorical type, or of booleans some of which are missing."""

    codes: np.ndarray  # positions in values, -1 where missing
    values: list[Any]
    kind: str = "categorical"  # or "bool"


Column: TypeAlias = np.ndarray | Coded
Reader: TypeAlias = Callable[[int], Column]


class Table(NamedTuple):
    """A table read by columns; a column is a numeric or object array, or Coded."""

    n_records: int
    names: tuple[str, ...] | None  # None for a table whose columns are numbered
    feature_names: tuple[str, ...]
    positions: dict[Any, int]  # from name or number to position
    read: Reader
    typed: bool = True  # False for lists, whose types are only those of their values

    @property
    def n_columns(self) -> int:
        return len(self.feature_names)


def read_table(X: Any, feature_names: Iterable[str] | None = None) -> Table:
    """Return an array or frame as a table."""
    if issparse(X):
        labels, shape, read = _sparse_columns(X)
    elif not hasattr(type(X), "columns"):  # of a lazy frame, the attribute itself would warn
        labels, shape, read = _array_columns(X)
    elif is_pandas(X):
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
    return Table(
        shape[0],
        names,
        shown,
        positions,
        lambda j: plain_column(read(j), f"column {shown[j]!r}"),
        hasattr(X, "dtype") or hasattr(type(X), "columns"),
    )


def _sparse_columns(X: Any) -> tuple[list[Any], tuple[int, ...], Reader]:
    """Return the labels, the shape and the reader of columns of a sparse matrix or array."""
    _check_dimensions(X.ndim)
    columns = X.tocsc()
    return list(range(X.shape[1])), X.shape, lambda j: columns[:, j : j + 1].toarray()[:, 0]


def _array_columns(X: Any) -> tuple[list[Any], tuple[int, ...], Reader]:
    """Return the labels, the shape and the reader of columns of an array-like."""
    array = as_array(X, "X")
    _check_dimensions(array.ndim)
    return list(range(array.shape[1])), array.shape, lambda j: array[:, j]


def _check_dimensions(ndim: int) -> None:
    """Refuse what is not two-dimensional, in scikit-learn's words."""
    if ndim < 2:
        raise ValueError(
            f"Expected 2D array, got {ndim}D array instead. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
            "contains a single sample."
        )
    if ndim > 2:
        raise ValueError(f"Found array with dim {ndim}, while dim <= 2 is required for X.")


def as_array(X: Any, what: str) -> np.ndarray:
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


def _pandas_column(X: Any) -> Reader:
    """Return the reader of columns of a pandas frame."""
    return lambda j: read_pandas(X.iloc[:, j])


def is_pandas(X: Any) -> bool:
    """Tell a pandas frame or series by its ways; the package itself need not be there."""
    return hasattr(X, "iloc")


def read_pandas(series: Any) -> Column:
    """Return a pandas series as a column."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy()
    if hasattr(dtype, "categories"):
        return Coded(np.asarray(series.cat.codes), list(dtype.categories))
    kind = getattr(dtype, "kind", "O")
    if kind in "mM":  # dates with a time zone
        return _dates(series.isna().to_numpy())
    if kind not in "biuf":
        return np.asarray(series, dtype=object)
    if not series.isna().any():
        return series.to_numpy(dtype=getattr(dtype, "numpy_dtype", dtype.type))
    return _numbers_or_booleans(series.to_numpy(dtype=np.float64, na_value=math.nan), kind)


def _narwhals() -> Any:
    """Return narwhals, which reads the frames of other libraries than pandas."""
    try:
        import narwhals
    except ImportError:
        raise TypeError(
            "X is a frame that is not from pandas: install narwhals (pip install narwhals), or "
            "convert it with X.to_pandas()"
        ) from None
    return narwhals


def _eager_frame(X: Any) -> Any:
    """Return a frame of another library than pandas as a frame of narwhals."""
    nw = _narwhals()
    try:
        return nw.from_native(X, eager_only=True)
    except TypeError:
        raise TypeError(
            "X is not a frame that can be read; collect a lazy frame with X.collect(), or pass an "
            "array or a pandas or polars DataFrame"
        ) from None


def _narwhals_column(frame: Any) -> Reader:
    """Return the reader of columns of a narwhals frame."""
    return lambda j: _read_narwhals(frame[frame.columns[j]])


def _read_narwhals(series: Any) -> Column:
    """Return a narwhals series as a column.

    The categories of an Enum are declared by the type; those of a Categorical come from the data,
    so it is read as text.
    """
    nw = _narwhals()
    dtype = series.dtype
    if dtype in (nw.Int128, nw.UInt128):  # NumPy has none
        series = series.cast(nw.Float64)
    if dtype.is_numeric() or dtype == nw.Boolean:
        if not series.is_null().any():
            return series.to_numpy()
        kind = "b" if dtype == nw.Boolean else "f"
        return _numbers_or_booleans(series.cast(nw.Float64).to_numpy(), kind)
    if dtype == nw.Enum:
        values = list(dtype.categories)
        codes = look_up(_objects_of(series.cast(nw.String).to_list()), values)
        return Coded(np.where(np.isnan(codes), -1, codes).astype(np.int64), values)
    if dtype.is_temporal():
        return _dates(series.is_null().to_numpy())
    if dtype == nw.Categorical:
        series = series.cast(nw.String)
    return _objects_of(series.to_list())


def _dates(missing: np.ndarray) -> np.ndarray:
    """Return some dates, for `plain_column` to refuse unless all are missing."""
    return np.where(missing, np.datetime64("NaT", "s"), np.datetime64(0, "s"))


def _numbers_or_booleans(values: np.ndarray, kind: str) -> Column:
    """Return a column of floats, which stand for booleans if its type is of kind "b"."""
    if kind != "b":
        return values
    return Coded(np.where(np.isnan(values), -1, values).astype(np.int8), [False, True], "bool")


def _objects_of(entries: list[Any]) -> np.ndarray:
    """Return a list as an object array of one dimension."""
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array


def plain_column(column: Column, what: str) -> Column:
    """Return a column with text as objects; refuse types that are neither numbers nor text."""
    if isinstance(column, Coded) or column.dtype.kind in "biufO":
        return column
    kind = column.dtype.kind
    if kind in "UT":
        return column.astype(object)
    if kind == "c":
        raise ValueError(f"Complex data not supported: {what} is complex; pass real numbers")
    if kind in "mM" and np.isnat(column).all():
        return np.full(column.shape, math.nan)
    if kind in "mM":
        raise TypeError(dates_message(what))
    raise TypeError(f"{what} holds bytes or records; convert it to numbers or to text")


def length(column: Column) -> int:
    """Return the number of entries of a column."""
    return len(column.codes if isinstance(column, Coded) else column)


def part_of(column: Column, start: int, end: int) -> Column:
    """Return a part of a column."""
    if isinstance(column, Coded):
        return column._replace(codes=column.codes[start:end])
    return column[start:end]


def _text_names(labels: list[Any]) -> tuple[str, ...] | None:
    """Return the names of columns, or None if they are not text."""
    text = [isinstance(label, str) for label in labels]
    repeated = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if repeated:
        raise ValueError(f"X repeats the column names {listed(repeated)}; rename the columns")
    if any(text) and not all(text):
        raise TypeError(
            "Feature names are only supported if all input features have string names; convert "
            "them with X.columns = X.columns.astype(str)"
        )
    return tuple(map(str, labels)) if all(text) and text else None


def _given_names(
    given: Iterable[str], names: tuple[str, ...] | None, n_columns: int
) -> tuple[str, ...]:
    """Return the names of columns that a parameter gives, which must not contradict the table."""
    given = tuple(given)
    if not all(isinstance(name, str) for name in given) or len(set(given)) < len(given):
        raise TypeError("feature_names must be distinct text")
    if len(given) != n_columns:
        raise ValueError(f"feature_names has {len(given)} names, but X has {n_columns} columns")
    if names is not None and names != given:
        raise ValueError("feature_names differ from the column names of X; leave them out")
    return given


def _check_shape(shape: tuple[int, ...]) -> None:
    """Refuse an empty table."""
    if shape[0] == 0:
        raise ValueError("X has 0 sample(s) while a minimum of 1 is required.")
    if shape[1] == 0:
        # In the words of scikit-learn, except for the number of records.
        raise ValueError("X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")


# Entries


_MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be there


def is_missing(entry: Any) -> bool:
    """Tell whether an entry of an object column is missing."""
    if entry is None or type(entry).__name__ in _MISSING_TYPES:
        return True
    if isinstance(entry, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(entry))
    if isinstance(entry, Decimal):
        return entry.is_nan()  # comparing a signalling NaN is an error
    return isinstance(entry, numbers.Number) and bool(entry != entry)


def present_types(column: Collection[Any]) -> set[type]:
    """Return the types of the entries of an object column that are not missing."""
    types = set(map(type, column))
    floats = {own for own in types if issubclass(own, (float, np.floating))}
    if floats and all(map(is_missing, (v for v in column if type(v) in floats))):
        types -= floats
    return {own for own in types if own is not type(None) and own.__name__ not in _MISSING_TYPES}


def as_real(entry: Any) -> float:
    """Return a number as a 64-bit float, one beyond their range as the largest one."""
    try:
        with np.errstate(over="ignore"):  # of a long double
            value = float(entry)
    except OverflowError:
        value = math.inf if entry > 0 else -math.inf
    if math.isinf(value) and -math.inf < entry < math.inf:
        return math.copysign(sys.float_info.max, value)
    return value


def key_of(entry: Any) -> Any:
    """Return what categories are compared by: numbers as 64-bit floats, all else as it is.

    Integers are rounded too, so that it makes no difference that one missing value in a column
    turns its integers into floats.
    """
    return as_real(entry) if isinstance(entry, (numbers.Real, Decimal)) else entry


def read_numbers(column: Column, what: str, remedy: str = "convert it to numbers") -> np.ndarray:
    """Return a numeric column as 32- or 64-bit floats, missing values as NaN.

    Messages speak of `what`, and name the remedy for text. Integers become 64-bit
    floats before anything else, for the reason given in `key_of`.
    """
    if isinstance(column, Coded):
        values = read_numbers(_objects_of([*column.values, None]), what, remedy)
        return values[column.codes]
    if column.dtype.kind != "O":
        small = column.dtype.kind == "f" and column.dtype.itemsize <= 4
        if column.dtype.kind == "f" and column.dtype.itemsize > 8:
            column = _within_64_bits(column)
        return column.astype(np.float32 if small else np.float64, copy=False)
    types = set(map(type, column))
    if any(issubclass(own, (str, bytes)) for own in types):
        raise ValueError(f"{what} holds text; {remedy}")
    if types <= {int, float, bool, type(None)}:
        try:
            return column.astype(np.float64)  # None becomes NaN
        except OverflowError:
            pass
    try:
        return np.array([math.nan if is_missing(v) else as_real(v) for v in column])
    except (TypeError, ValueError):
        raise TypeError(objects_message(what, types)) from None


def _within_64_bits(values: np.ndarray) -> np.ndarray:
    """Return long doubles with the finite ones within the range of 64-bit floats."""
    largest = np.longdouble(sys.float_info.max)
    return np.where(np.isfinite(values), np.clip(values, -largest, largest), values)


def objects_message(what: str, types: Iterable[type]) -> str:
    """Return the message about entries that are neither numbers nor text."""
    if holds_dates(types):
        return dates_message(what)
    return (
        f"{what} holds objects, but each argument must be a string or a real number; convert it to "
        "numbers or to text"
    )


def holds_dates(types: Iterable[type]) -> bool:
    """Tell whether types are such of dates, times or durations."""
    return any(issubclass(own, (datetime.date, datetime.time, datetime.timedelta)) for own in types)


def dates_message(what: str) -> str:
    """Return the message about dates."""
    return f"{what} holds dates or durations; convert it to numbers or to text"


def look_up(column: Column, values: Iterable[Any]) -> np.ndarray:
    """Return the place of each entry in a list of values, as floats: UNKNOWN, NaN if missing."""
    places = places_of(values)
    if isinstance(column, Coded):
        recode = [_place(value, places) for value in column.values]
        return np.array([*recode, math.nan], dtype=np.float32)[column.codes]
    if column.dtype.kind == "O":
        return _look_up_objects(column, places)
    return _look_up_numbers(read_numbers(column, "").astype(np.float64, copy=False), places)


def places_of(values: Iterable[Any]) -> dict[Any, float]:
    """Return the place of each of a list of values, by what they are compared by."""
    return {key_of(value): float(place) for place, value in enumerate(values)}


def number_keys(places: dict[Any, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers among the keys in order, and their places."""
    keys = sorted(key for key in places if isinstance(key, float))
    return np.array(keys), np.array([places[key] for key in keys])


def _look_up_objects(column: np.ndarray, places: dict[Any, float]) -> np.ndarray:
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


def _place(entry: Any, places: dict[Any, float]) -> float:
    """Look up one entry."""
    if is_missing(entry):
        return math.nan
    try:
        return places.get(key_of(entry), UNKNOWN)
    except TypeError:
        return UNKNOWN


def _look_up_numbers(values: np.ndarray, places: dict[Any, float]) -> np.ndarray:
    """Look up the entries of a numeric column by bisection."""
    keys, order = number_keys(places)
    codes = np.full(values.shape, UNKNOWN, dtype=np.float32)
    if keys.size:
        at = np.minimum(np.searchsorted(keys, values), keys.size - 1)
        known = keys[at] == values
        codes[known] = order[at[known]]
    codes[np.isnan(values)] = math.nan
    return codes


def listed(values: Iterable[Any], most: int = 6) -> str:
    """Return values in one line, the first few of many."""
    values = list(values)
    return ", ".join(map(repr, values[:most])) + (", ..." if len(values) > most else "")
