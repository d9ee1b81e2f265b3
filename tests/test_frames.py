"""Frames of pandas and polars: types of columns, order by name, missing and unseen values."""

import datetime
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from lumberjack import Domain, LumberjackClassifier, LumberjackRegressor, PrivacyLeakWarning
from lumberjack.frames import look_up, read_numbers, read_table

N_RECORDS = 400
JOBS = ["clerk", "nurse", "smith"]
PUBLIC = {
    "bounds": {"age": (17, 90), "hours": (0, 99)},
    "categories": {"job": JOBS},
    "classes": ["no", "yes"],
}
DECLARATION = {"age": [17, 90], "hours": [0, 99], "job": JOBS, "member": [0, 1]}


def records(seed=0):
    """Columns as lists, with a missing value in each."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(17, 91, N_RECORDS).tolist(),
        "hours": rng.uniform(0, 99, N_RECORDS).tolist(),
        "job": rng.choice(JOBS, N_RECORDS).tolist(),
        "member": rng.choice([True, False], N_RECORDS).tolist(),
    }
    for place, own in enumerate(columns.values()):
        own[place] = None
    labels = ["yes" if own is not None and own > 50 else "no" for own in columns["age"]]
    return columns, labels


def pandas_objects(columns):
    return pd.DataFrame(columns, dtype=object)


def pandas_nullable(columns):
    types = {"age": "Int16", "hours": "Float64", "member": "boolean"}
    return pd.DataFrame(columns).astype({**types, "job": pd.CategoricalDtype(JOBS)})


def pandas_plain(columns):
    return pd.DataFrame(columns).astype({"job": "string", "member": "boolean"})


def polars_enum(columns):
    pl = pytest.importorskip("polars")
    types = {"age": pl.Int32, "hours": pl.Float64, "job": pl.Enum(JOBS), "member": pl.Boolean}
    return pl.DataFrame(columns, schema=types)


def polars_text(columns):
    pl = pytest.importorskip("polars")
    types = {"age": pl.Int64, "hours": pl.Float64, "job": pl.String, "member": pl.Boolean}
    return pl.DataFrame(columns, schema=types)


def polars_categorical(columns):
    pl = pytest.importorskip("polars")
    return polars_text(columns).with_columns(pl.col("job").cast(pl.Categorical))


def arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


FRAMES = [
    pandas_objects, pandas_nullable, pandas_plain, polars_enum, polars_text, polars_categorical,
    arrow,
]  # fmt: skip


def model(**changes):
    return LumberjackClassifier(
        **{"n_estimators": 5, "epsilon": 8.0, "delta": 1e-4, **PUBLIC, **changes}
    )


def fit_seeded(estimator, X, y):
    with pytest.warns(PrivacyLeakWarning, match="random_state is given"):
        return estimator.fit(X, y)


@pytest.mark.parametrize("make", FRAMES)
def test_every_frame_gives_the_same_forest_and_the_same_answers(make):
    columns, y = records()
    expected = fit_seeded(model(random_state=1), pandas_objects(columns), y)
    X = make(columns)
    found = fit_seeded(model(random_state=1), X, y)
    assert found.domain_ == expected.domain_
    assert found.nodes_.tobytes() == expected.nodes_.tobytes()
    assert found.feature_names_in_.tolist() == list(columns)
    assert_array_equal(found.predict_proba(X), expected.predict_proba(pandas_objects(columns)))
    assert_array_equal(found.predict_proba(pandas_objects(columns)), found.predict_proba(X))
    assert found.score(X, y) == expected.score(pandas_objects(columns), y) > 0.8


@pytest.mark.parametrize("make", FRAMES)
def test_columns_are_found_by_name_when_predicting(make):
    columns, y = records()
    X = make(columns)
    fitted = model().fit(X, y)
    names = [*reversed(columns)]
    turned = X.select(names) if make is arrow else X[names]
    assert_array_equal(fitted.predict_proba(turned), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="now missing:\n- age"):
        fitted.predict(pandas_objects({k: v for k, v in columns.items() if k != "age"}))
    with pytest.raises(ValueError, match="unseen at fit time:\n- other"):
        fitted.predict(pandas_objects({**columns, "other": [0] * N_RECORDS}))


@pytest.mark.parametrize("make", [pandas_objects, polars_text])
def test_unseen_and_missing_values_are_routed(make):
    columns, y = records()
    fitted = model().fit(make(columns), y)
    odd = {
        "age": [None, 10**6, -5, 30],
        "hours": [None, 1e300, -1.0, float("nan")],
        "job": [None, "unheard of", "", "clerk"],
        "member": [None, True, False, None],
    }
    probabilities = fitted.predict_proba(make(odd))
    assert np.isfinite(probabilities).all()
    encoded = fitted.domain_.encode(make(odd), layout="rows")
    assert_array_equal(encoded[:, 2], [np.nan, -1, -1, 0])
    assert_array_equal(np.isnan(encoded[:, 3]), [True, False, False, True])


def test_types_declare_what_they_know():
    columns, y = records()
    for make, categories in ((pandas_nullable, None), (polars_enum, None)):
        domain = Domain.declare(make(columns), y, **{**PUBLIC, "categories": categories})
        assert domain.categories == (None, None, tuple(JOBS), None)
        assert domain.lower[3] == 0 and domain.upper[3] == 1
        assert not domain.inferred
    # The categories of these types come from the data.
    for make in (polars_categorical, polars_text, pandas_plain):
        with pytest.raises(ValueError, match=re.escape('categories={"job": [...]}')):
            Domain.declare(make(columns), y, **{**PUBLIC, "categories": None})


# Which columns are categorical


def coded(**changes):
    """A frame in which the categories of two columns are numbers."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(17, 91, 60),
            "wing": rng.integers(0, 4, 60),
            "sex": pd.Categorical.from_codes(rng.integers(0, 2, 60), ["Female", "Male"]),
            "member": rng.integers(0, 2, 60).astype(bool),
            **changes,
        }
    )


WING = {"wing": range(4)}


@pytest.mark.parametrize(
    ("chosen", "categories", "categorical"),
    [
        ("from_dtype", None, [False, False, True, False]),
        ("from_dtype", WING, [False, True, True, False]),
        (["wing", "sex"], WING, [False, True, True, False]),
        ([1, 2], WING, [False, True, True, False]),
        (np.array([1, 2]), WING, [False, True, True, False]),
        ([False, True, True, False], WING, [False, True, True, False]),
        (np.array([False, True, True, True]), WING, [False, True, True, True]),
        (("wing", "sex", "member"), WING, [False, True, True, True]),
        (["sex"], None, [False, False, True, False]),
    ],
)
def test_categorical_features(chosen, categories, categorical):
    own = {"bounds": (0, 100), "categories": categories, "classes": [0, 1]}
    domain = Domain.declare(coded(), [0, 1] * 30, categorical_features=chosen, **own)
    assert domain.is_categorical.tolist() == categorical
    if categorical[1]:
        assert domain.categories[1] == (0, 1, 2, 3)
    if categorical[2]:
        assert domain.categories[2] == ("Female", "Male")
    if categorical[3]:
        assert domain.categories[3] == (False, True)
    fitted = LumberjackClassifier(5, categorical_features=chosen, **own).fit(coded(), [0, 1] * 30)
    assert fitted.domain_ == domain


@pytest.mark.parametrize("chosen", [None, [], [False] * 3])
def test_no_categorical_features(chosen):
    X = coded(sex=pd.Categorical.from_codes([0, 1] * 30, [10, 20])).drop(columns="wing")
    domain = Domain.declare(
        X, [0, 1] * 30, bounds=(0, 100), classes=[0, 1], categorical_features=chosen
    )
    assert not domain.is_categorical.any()
    assert set(domain.encode(X)[1]) == {10, 20}


def test_categorical_features_of_an_array_and_their_inference():
    X = np.random.default_rng(0).integers(0, 4, (60, 2)).astype(float)
    own = {"bounds": (0, 4), "classes": [0, 1]}
    for chosen in ([1], ["x1"], [False, True]):
        domain = Domain.declare(
            X, [0, 1] * 30, categories={1: [0, 1, 2, 3]}, categorical_features=chosen, **own
        )
        assert domain.is_categorical.tolist() == [False, True]
        with pytest.warns(PrivacyLeakWarning, match="categories of x1"):
            inferred = Domain.declare(
                X, [0, 1] * 30, categories="infer", categorical_features=chosen, **own
            )
        assert inferred.categories[1] == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("chosen", "changes", "part"),
    [
        ("auto", {}, "categorical_features must be"),
        (3, {}, "categorical_features must be"),
        ([[1]], {}, "categorical_features must be"),
        ([0.5], {}, "categorical_features must be"),
        ([True, False], {}, "has 2 entries; give one for each of the 4 columns"),
        (["wings"], {}, "categorical_features names 'wings', which is not a column"),
        ([7], {}, "categorical_features names 7"),
        (["wing", 1], {}, "names the column 1 twice"),
        (["sex"], {"categories": WING}, "names 'wing', which categorical_features does not"),
        (["age", "sex"], {"bounds": {"age": (0, 1)}}, "both bounds and categorical_features"),
        (["wing"], {"bounds": (0, 100)}, r'categories={"wing": \[...\]}'),
    ],
)
def test_wrong_categorical_features(chosen, changes, part):
    own = {"bounds": (0, 100), "classes": [0, 1], **changes}
    if "wing" not in part:
        own.setdefault("categories", None)
    with pytest.raises((ValueError, TypeError), match=part):
        Domain.declare(coded(), [0, 1] * 30, categorical_features=chosen, **own)


def test_text_must_be_among_the_categorical_features():
    with pytest.raises(ValueError, match="column 'sex' holds text, but categorical_features"):
        Domain.declare(
            coded(sex=["a", "b"] * 30), [0, 1] * 30,
            bounds=(0, 100), classes=[0, 1], categorical_features=[],
        )  # fmt: skip


# A domain as a parameter


@pytest.mark.parametrize("form", ["domain", "dict", "file", "path", "text"])
def test_the_domain_of_an_estimator(form, tmp_path):
    columns, y = records()
    domain = Domain.from_dict(DECLARATION, classes=["no", "yes"])
    path = tmp_path / "people.json"
    text = domain.to_json(path)
    given = {
        "domain": domain,
        "dict": domain.to_dict(),
        "file": str(path),
        "path": path,
        "text": text,
    }[form]
    expected = fit_seeded(model(random_state=1), pandas_plain(columns), y)
    found = LumberjackClassifier(5, epsilon=8.0, delta=1e-4, random_state=1, domain=given)
    fit_seeded(found, pandas_plain(columns), y)
    assert found.domain is given and found.domain_ == expected.domain_
    assert found.nodes_.tobytes() == expected.nodes_.tobytes()
    assert found.privacy_ == expected.privacy_


def test_the_domain_takes_the_order_of_the_table():
    columns, y = records()
    domain = Domain.from_dict({name: DECLARATION[name] for name in sorted(DECLARATION)})
    fitted = LumberjackClassifier(5, domain=domain, classes=["no", "yes"], epsilon=8.0)
    fitted.fit(pandas_plain(columns), y)
    assert fitted.domain_.feature_names == tuple(fitted.feature_names_in_) == tuple(columns)
    assert fitted.domain_.categories[2] == tuple(JOBS)
    by_place = np.column_stack([np.zeros((3, 2)), [0, 1, 2], np.ones(3)]).astype(object)
    assert fitted.predict(by_place).shape == (3,)


def test_the_domain_of_an_array_and_of_a_regression():
    X = np.random.default_rng(0).random((500, 2))
    domain = Domain.from_dict({"a": [0, 1], "b": [0, 1]}, target_bounds=(0, 2))
    fitted = LumberjackRegressor(5, epsilon=8.0, domain=domain).fit(X, X.sum(axis=1))
    assert fitted.domain_ == domain and fitted.score(X, X.sum(axis=1)) > 0.3
    named = pd.DataFrame({"b": X[:, 1], "a": X[:, 0]})
    assert_array_equal(fitted.predict(named), fitted.predict(X))
    other = LumberjackClassifier(5, domain=domain, classes=[0, 1]).fit(X, X[:, 0] > 0.5)
    assert other.domain_.target_bounds is None and other.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"bounds": (0, 1)}, "leave out bounds"),
        ({"categories": "infer"}, "leave out categories"),
        ({"categorical_features": None}, None),
        ({"categorical_features": [0]}, "leave out categorical_features"),
        ({"classes": ["a", "b"]}, "declare different classes"),
        ({"classes": "infer"}, "declare different classes"),
        ({"domain": 3}, "domain must be"),
        ({"domain": {"age": [17, 90]}}, "does not declare the columns 'hours', 'job', 'member'"),
        ({"domain": {**DECLARATION, "wing": [0, 1]}}, "X lacks the columns 'wing'"),
        ({"domain": DECLARATION}, r"classes=\[...\]"),
        ({"domain": "{"}, "not valid JSON"),
        ({"domain": '{"a": [0, 1], "a": [0, 2]}'}, "names a column twice"),
    ],
)
def test_wrong_domains_of_an_estimator(changes, part):
    columns, y = records()
    domain = Domain.from_dict(DECLARATION, classes=["no", "yes"])
    estimator = LumberjackClassifier(5, **{"domain": domain, **changes})
    if part is None:
        estimator.fit(pandas_plain(columns), y)
        return
    with pytest.raises((ValueError, TypeError), match=part):
        estimator.fit(pandas_plain(columns), y)
    assert not hasattr(estimator, "privacy_")


def test_what_a_domain_inferred_stays_outside_the_guarantee():
    columns, y = records()
    with pytest.warns(PrivacyLeakWarning):
        domain = Domain.declare(pandas_plain(columns), y, **{**PUBLIC, "bounds": "infer"})
    with pytest.warns(PrivacyLeakWarning, match="bounds of age"):
        fitted = LumberjackClassifier(5, domain=domain).fit(pandas_plain(columns), y)
    assert fitted.privacy_.inferred == domain.inferred != ()
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        fitted = LumberjackClassifier(5, domain=DECLARATION, classes="infer")
        fitted.fit(pandas_plain(columns), y)
    assert fitted.privacy_.inferred == ("classes",)


@pytest.mark.parametrize("make", FRAMES)
def test_a_public_reference_frame_declares_everything(make):
    columns, y = records()
    domain = Domain.from_frame(make(columns), y)
    ages = [own for own in columns["age"] if own is not None]
    assert (domain.lower[0], domain.upper[0]) == (min(ages), max(ages))
    assert domain.categories == (None, None, tuple(JOBS), None)
    assert domain.classes.tolist() == ["no", "yes"] and domain.inferred == ()
    assert Domain.from_json(domain.to_json()) == domain
    wider = Domain.from_frame(make(columns), bounds={"age": (0, 120)}, classes=["a", "b"])
    assert (wider.lower[0], wider.upper[0]) == (0, 120) and wider.upper[1] == domain.upper[1]
    assert wider.classes.tolist() == ["a", "b"]
    without = Domain.from_frame(make(columns))
    assert without.classes is None and without.target_bounds is None
    target = Domain.from_frame(make(columns), np.arange(N_RECORDS), regression=True)
    assert target.target_bounds == (0, N_RECORDS - 1) and target.classes is None


# Entries and types that libraries do not agree about


@pytest.mark.parametrize("name", ["Int128", "UInt8", "Int64", "Float32", "Null"])
@pytest.mark.parametrize("missing", [False, True])
def test_numbers_of_polars(name, missing):
    pl = pytest.importorskip("polars")
    entries = [None] * 3 if name == "Null" else [0, 1, None if missing else 7]
    X = pl.DataFrame({"a": pl.Series(entries, dtype=getattr(pl, name))})
    expected = [np.nan if own is None else own for own in entries]
    domain = Domain.from_dict({"a": [0, 7]})
    assert_array_equal(domain.encode(X)[0], expected)
    domain = Domain.from_dict({"a": {"categories": [0, 1]}})
    known = [np.nan if own is None else own if own < 2 else -1 for own in entries]
    assert_array_equal(domain.encode(X)[0], known)


DATES = [
    lambda: pd.DataFrame({"a": pd.date_range("2020", periods=3)}),
    lambda: pd.DataFrame({"a": pd.date_range("2020", periods=3, tz="UTC")}),
    lambda: pd.DataFrame({"a": [datetime.date(2020, 1, 1)] * 3}, dtype=object),
    lambda: pd.DataFrame({"a": pd.to_timedelta([1, 2, 3])}),
    lambda: pytest.importorskip("polars").DataFrame({"a": [datetime.date(2020, 1, 1)] * 3}),
    lambda: pytest.importorskip("polars").DataFrame({"a": [datetime.timedelta(1)] * 3}),
    lambda: pytest.importorskip("polars").DataFrame({"a": [datetime.time(1)] * 3}),
]


@pytest.mark.parametrize("make", DATES)
@pytest.mark.parametrize("bounds", [(0, 1), {"a": (0, 1)}])
def test_dates_are_called_dates(make, bounds):
    with pytest.raises(TypeError, match="column 'a' holds dates or durations"):
        Domain.from_dict({"a": [0, 1]}).encode(make())
    with pytest.raises(TypeError, match="column 'a' holds dates or durations"):
        LumberjackClassifier(bounds=bounds, classes=[0, 1]).fit(make(), [0, 1, 0])


def test_missing_dates_are_missing():
    frames = [pd.DataFrame({"a": pd.Series([pd.NaT] * 3, dtype="datetime64[ns, UTC]")})]
    pl = pytest.importorskip("polars")
    frames.append(pl.DataFrame({"a": pl.Series([None] * 3, dtype=pl.Date)}))
    for X in frames:
        assert np.isnan(Domain.from_dict({"a": [0, 1]}).encode(X)).all()


def test_odd_numbers():
    domain = Domain.from_dict({"a": [0, 1], "b": {"categories": [1, 2]}})
    rows = [
        [Decimal("sNaN"), Decimal("sNaN")],
        [Decimal("1e400"), Decimal("-1e400")],
        [np.longdouble("-1e4000"), np.longdouble("1e4000")],
        [Decimal("0.5"), Decimal(2)],
    ]
    expected = [[np.nan, np.nan], [1, -1], [0, -1], [0.5, 1]]
    assert_array_equal(domain.encode(rows, layout="rows"), expected)
    X = np.array([["0.5", "2"], ["1e4000", "1e4000"], ["nan", "nan"]], dtype=np.longdouble)
    assert_array_equal(domain.encode(X, layout="rows"), [[0.5, 1], [1, -1], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="column 'a' holds infinite values"):
        domain.encode(np.full((2, 2), np.longdouble("inf")))
    with pytest.raises(ValueError, match="column 'a' holds infinite values"):
        domain.encode([[Decimal("inf"), 1]])


# Sparse matrices


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.bool_])
def test_sparse_matrices(form, dtype):
    dense = (np.random.default_rng(0).random((50, 4)) > 0.7).astype(dtype)
    domain = Domain.from_dict({f"x{j}": [0, 1] for j in range(3)} | {"x3": {"categories": [0, 1]}})
    for kind in ("matrix", "array"):
        X = getattr(sparse, f"{form}_{kind}")(dense)
        assert_array_equal(domain.encode(X), domain.encode(dense))


def test_sparse_entries_that_are_given_twice_or_missing():
    X = sparse.csc_matrix(([0.25, 0.5, np.nan], [0, 0, 1], [0, 3]), shape=(3, 1))
    assert_array_equal(Domain.from_dict({"a": [0, 1]}).encode(X)[0], [0.75, np.nan, 0])
    assert X.nnz == 3, "not summed in place"


def test_sparse_matrices_that_cannot_be_read():
    domain = Domain.from_dict({"a": [0, 1]})
    with pytest.raises(ValueError, match="Complex data not supported"):
        domain.encode(sparse.csr_array(np.full((3, 1), 1j)))
    with pytest.raises(ValueError, match="infinite"):
        domain.encode(sparse.csr_array([[np.inf]]))
    with pytest.raises(ValueError, match="minimum of 1"):
        domain.encode(sparse.csr_array((0, 1)))
    with pytest.raises(ValueError, match="Expected 2D array"):
        domain.encode(sparse.coo_array(np.ones(3)))


def test_a_table_is_read_by_columns():
    table = read_table(pd.DataFrame({"a": [1, 2], "b": ["x", None]}))
    assert table.names == table.feature_names == ("a", "b") and table.n_records == 2
    assert read_numbers(table.read(0), "a").tolist() == [1, 2]
    assert_array_equal(look_up(table.read(1), ["y", "x"]), [1, np.nan])
    assert read_table([[1, 2]]).names is None and read_table([[1, 2]]).feature_names == ("x0", "x1")
