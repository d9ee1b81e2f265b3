"""Tests of the declarations and of the encoding."""

import importlib.util
import json
import pickle
import re
import subprocess
import sys
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from lumberjack.domain import Domain, PrivacyLeakWarning

N_RECORDS = 37
CANARY_TEXT = "canary"
CANARY_NUMBER = 7654321.5
CANARY_ROW = 29
FLOAT32_MAX = np.finfo(np.float32).max

needs_polars = pytest.mark.skipif(
    importlib.util.find_spec("polars") is None, reason="polars is not installed"
)


def frame(**columns):
    """A frame of 37 records: age, hours (numbers), sex, job (text) and others given."""
    rng = np.random.default_rng(0)
    data = {
        "age": rng.integers(17, 91, N_RECORDS),
        "hours": rng.uniform(0, 99, N_RECORDS),
        "sex": rng.choice(["Female", "Male"], N_RECORDS).astype(object),
        "job": rng.choice(["clerk", "nurse", "smith"], N_RECORDS).astype(object),
    }
    data.update(columns)
    return pd.DataFrame(data)


BOUNDS = {"age": (17, 90), "hours": (0, 99)}
CATEGORIES = {"sex": ["Female", "Male"], "job": ["clerk", "nurse", "smith"]}
CLASSES = ["no", "yes"]
LABELS = np.array(["no", "yes"] * N_RECORDS)[:N_RECORDS]


def declare(X=None, y=LABELS, **changes):
    arguments = {"bounds": BOUNDS, "categories": CATEGORIES, "classes": CLASSES, **changes}
    return Domain.declare(frame() if X is None else X, y, **arguments)


def declare_numbers(X, bounds=(0, 1), **changes):
    return Domain.declare(X, np.arange(len(X)) % 2, bounds=bounds, classes=[0, 1], **changes)


def with_canary(values, canary, dtype=object):
    values = np.array(values, dtype=dtype)
    values[CANARY_ROW] = canary
    return values


def message_of(error, call):
    """The message of the error that a call raises, which must tell nothing of the data."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert CANARY_TEXT not in message and "7654321" not in message
    for number in (N_RECORDS, N_RECORDS - 1, CANARY_ROW, CANARY_ROW + 1):
        assert not re.search(rf"\b{number}\b", message)
    return message


def expect(error, call, *parts):
    message = message_of(error, call)
    for part in parts:
        assert part in message, message


# What is declared


def test_fields_of_a_declared_frame():
    domain = declare()
    assert domain.feature_names == ("age", "hours", "sex", "job")
    assert domain.lower.dtype == domain.upper.dtype == np.float32
    assert_array_equal(domain.lower, [17, 0, 0, 0])
    assert_array_equal(domain.upper, [90, 99, 0, 0])
    assert domain.categories == (None, None, ("Female", "Male"), ("clerk", "nurse", "smith"))
    assert_array_equal(domain.is_categorical, [False, False, True, True])
    assert_array_equal(domain.n_categories, [0, 0, 2, 3])
    assert domain.n_categories.dtype == np.int32
    assert_array_equal(domain.classes, CLASSES)
    assert domain.inferred == () and domain.named and domain.n_features == 4


def test_domain_does_not_depend_on_the_records():
    other = frame().assign(age=5000, hours=np.nan, sex="unheard of", job=None)
    assert declare(other) == declare()
    assert declare(frame().iloc[:1], y=LABELS[:1]) == declare()


def test_domain_is_frozen():
    domain = declare()
    with pytest.raises(AttributeError):
        domain.feature_names = ()
    for array in (domain.lower, domain.upper, domain.classes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_domain_does_not_alias_the_parameters():
    lower, classes = np.zeros(1), np.array(["a", "b"])
    domain = Domain(["x"], lower, [1], [None], classes)
    lower[0], classes[0] = -1, "c"
    assert domain.lower[0] == 0 and domain.classes[0] == "a"


def test_names_of_an_array_are_numbered():
    domain = declare_numbers(np.zeros((3, 2)))
    assert domain.feature_names == ("x0", "x1") and not domain.named


def test_feature_names_name_the_columns_of_an_array():
    X = np.zeros((3, 2))
    domain = declare_numbers(X, {"a": (0, 1), 1: (0, 5)}, feature_names=["a", "b"])
    assert domain.feature_names == ("a", "b") and domain.named
    assert_array_equal(domain.upper, [1, 5])
    frame_ = pd.DataFrame({"b": [1.0], "a": [2.0]})
    assert_array_equal(domain.encode(frame_), [[2], [1]])
    assert_array_equal(domain.encode([[1.0, 2.0]]), [[1], [2]])


def test_integer_labels_of_a_frame_are_the_keys_of_the_dicts():
    X = pd.DataFrame({10: [0.0, 1.0], 3: [5.0, 6.0]})
    domain = declare_numbers(X, {3: (0, 9), 10: (0, 1)})
    assert_array_equal(domain.upper, [1, 9])
    assert domain.feature_names == ("x0", "x1") and not domain.named


@pytest.mark.parametrize(
    "bounds",
    [
        ([17, 0], [90, 99]),
        (np.array([17, 0]), np.array([90.0, 99.0])),
        ([17, 0, None, np.nan], [90, 99, None, np.nan]),
        BOUNDS,
    ],
)
def test_forms_of_bounds(bounds):
    assert declare(bounds=bounds) == declare()


def test_pair_of_bounds_holds_for_all_numeric_columns():
    domain = declare(bounds=(0, 100))
    assert_array_equal(domain.lower, [0, 0, 0, 0])
    assert_array_equal(domain.upper, [100, 100, 0, 0])


def test_position_or_generated_name():
    X = np.column_stack([np.zeros(4), np.arange(4)])
    by_number = declare_numbers(X, {0: (0, 1)}, categories={1: [0, 1, 2]})
    by_name = declare_numbers(X, {"x0": (0, 1)}, categories={"x1": [0, 1, 2]})
    assert by_number == by_name


def test_booleans_declare_themselves():
    X = frame(employed=np.arange(N_RECORDS) % 2 == 0)
    for bounds in (BOUNDS, (0, 100)):
        domain = declare(X, bounds=bounds)
        assert (domain.lower[-1], domain.upper[-1]) == (0, 1) and not domain.is_categorical[-1]
    objects = X.astype({"employed": object})
    assert declare(objects) == declare(X)
    objects.loc[3, "employed"] = None
    assert declare(objects, bounds=(0, 100)) == declare(X, bounds=(0, 100))
    assert declare(X, bounds={**BOUNDS, "employed": (-1, 2)}).upper[-1] == 2
    nullable = X.astype({"employed": "boolean"})
    assert declare(nullable) == declare(X)
    nullable["employed"] = pd.array([None] * N_RECORDS, dtype="boolean")
    assert declare(nullable) == declare(X)
    nullable.loc[0, "employed"] = True
    assert_array_equal(declare(X).encode(nullable)[-1, :2], [1, np.nan])


def test_categorical_type_declares_itself_unless_listed():
    X = frame().astype({"sex": pd.CategoricalDtype(["Male", "Female", "other"])})
    domain = declare(X, categories={"job": CATEGORIES["job"]})
    assert domain.categories[2] == ("Male", "Female", "other")
    assert domain.inferred == ()
    assert declare(X) == declare()
    assert_array_equal(declare(X).encode(X), declare().encode(frame()))


def test_categorical_type_with_bounds_is_numeric():
    X = frame()
    coded = X.astype({"age": "category"})
    assert declare(coded) == declare(X)
    assert_array_equal(declare(coded).encode(coded), declare(X).encode(X))


def test_listed_column_is_categorical_whatever_its_type():
    X = pd.DataFrame({"i": [1, 2], "f": [1.5, np.nan], "b": [True, False]})
    domain = Domain.declare(
        X, [0, 1], categories={"i": [2, 1], "f": [1.5], "b": [False, True]}, classes=[0, 1]
    )
    assert_array_equal(domain.encode(X), [[1, 0], [0, np.nan], [1, 0]])
    assert domain.is_categorical.all()


def test_bounds_are_rounded_as_values_are():
    domain = declare_numbers([[0.1]] * 2, (0.1, 0.3))
    assert domain.lower[0] == np.float32(0.1) and domain.upper[0] == np.float32(0.3)
    encoded = domain.encode([[0.1], [0.3]])
    assert encoded[0, 0] == domain.lower[0] and encoded[0, 1] == domain.upper[0]
    wide = declare_numbers([[0.1]] * 2, (-1e300, 1e300))
    assert (wide.lower[0], wide.upper[0]) == (-FLOAT32_MAX, FLOAT32_MAX)


def test_equal_bounds_are_allowed():
    assert declare_numbers([[3.0]] * 2, (3, 3)).lower[0] == 3


# Reading from the data


def test_infer_reads_warns_once_and_is_recorded():
    X = frame(age=with_canary(np.full(N_RECORDS, 30), np.nan, float))
    with pytest.warns(PrivacyLeakWarning) as caught:
        domain = declare(X, bounds="infer", categories="infer", classes="infer")
    assert len(caught) == 1 and caught[0].filename == __file__
    assert domain.inferred == (
        "bounds of age",
        "bounds of hours",
        "categories of sex",
        "categories of job",
        "classes",
    )
    for what in domain.inferred:
        assert what in str(caught[0].message)
    assert (domain.lower[0], domain.upper[0]) == (30, 30)
    assert domain.upper[1] == np.float32(X["hours"].max())
    assert domain.categories[2:] == (("Female", "Male"), ("clerk", "nurse", "smith"))
    assert_array_equal(domain.classes, ["no", "yes"])


def test_infer_leaves_alone_what_is_declared():
    X = frame(sex=pd.Categorical(["Male"] * N_RECORDS, ["Male", "Female"]), flag=True)
    with pytest.warns(PrivacyLeakWarning):
        domain = declare(X, bounds="infer", categories={"job": ["clerk"]})
    assert domain.inferred == ("bounds of age", "bounds of hours")
    assert domain.categories[2:4] == (("Male", "Female"), ("clerk",))
    with pytest.warns(PrivacyLeakWarning):
        domain = declare(frame(), categories="infer")
    assert domain.inferred == ("categories of sex", "categories of job")


def test_nothing_to_infer_does_not_warn():
    X = pd.DataFrame({"flag": [True, False]})
    domain = Domain.declare(X, [0, 1], bounds="infer", categories="infer", classes=[0, 1])
    assert domain.inferred == ()


def test_infer_of_missing_and_mixed_columns():
    X = pd.DataFrame(
        {
            "nothing": np.full(4, np.nan),
            "none": np.full(4, None),
            "mixed": np.array(["b", 2, None, 1.0], dtype=object),
            "flags": np.array([True, 7, None, False], dtype=object),
        }
    )
    with pytest.warns(PrivacyLeakWarning):
        domain = Domain.declare(X, [0, 1] * 2, bounds="infer", categories="infer", classes=[0, 1])
    assert domain.categories == (None, ("",), (1.0, 2.0, "b"), None)
    assert_array_equal(domain.upper, [0, 0, 0, 7])
    assert_array_equal(domain.encode(X)[1:3], [[np.nan] * 4, [2, 1, np.nan, 0]])
    assert_array_equal(domain.encode(X.assign(none="text"))[1], [-1] * 4)
    with pytest.warns(PrivacyLeakWarning):
        domain = Domain.declare(
            X, [0, 1] * 2, bounds=([0] * 4, [9] * 4), categories="infer", classes=[0, 1]
        )
    assert domain.categories == (None, None, (1.0, 2.0, "b"), None)
    assert_array_equal(domain.upper, [9, 9, 0, 9])


@pytest.mark.parametrize(
    "labels, classes",
    [
        (["b", "a", "b"], ["a", "b"]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
        ([2, 0, 5], [0, 2, 5]),
        ([2.0, 0.0, 5.0], [0, 2, 5]),
        ([True, False, True], [False, True]),
        (np.array([3, 1, 3], dtype=object), [1, 3]),
        (pd.Series(["b", "a", "b"]), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series([3, 1, 3], dtype="Int64"), [1, 3]),
        (pd.Series([True, False, True], dtype="boolean"), [False, True]),
        (pd.Series([True, False, True], dtype=object), [False, True]),
        (pd.Index(["b", "a", "b"]), ["a", "b"]),
        (pd.Categorical(["b", "a", "b"]), ["a", "b"]),
    ],
)
def test_infer_and_encode_classes(labels, classes):
    X = np.zeros((3, 1))
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        domain = Domain.declare(X, labels, bounds=(0, 1), classes="infer")
    assert_array_equal(domain.classes, classes)
    assert type(domain.classes[0].item()) in (type(classes[0]), float)
    codes = domain.encode_classes(labels)
    assert codes.dtype == np.int32
    assert_array_equal(domain.classes[codes], np.asarray(labels))


def test_classes_are_sorted_and_keep_their_type():
    assert declare(classes=["yes", "no"]).classes.tolist() == ["no", "yes"]
    X = np.zeros((2, 1))
    for classes in ([5, 2], (5, 2), np.array([5, 2]), pd.Series([5, 2])):
        domain = Domain.declare(X, [2, 5], bounds=(0, 1), classes=classes)
        assert domain.classes.tolist() == [2, 5]
        assert domain.encode_classes([5.0, 2.0]).tolist() == [1, 0]


# What is not declared


def test_missing_declarations_name_columns_and_show_the_lines():
    expect(
        ValueError,
        lambda: declare(bounds=None, categories=None, classes=None),
        "'age', 'hours'",
        'bounds={"age": (lo, hi), "hours": (lo, hi)}',
        'bounds="infer"',
        "'sex', 'job'",
        'categories={"sex": [...], "job": [...]}',
        'categories="infer"',
        "classes=[...]",
        'classes="infer"',
    )
    expect(ValueError, lambda: declare(bounds={"age": (0, 1)}), 'bounds={"hours": (lo, hi)}')
    expect(ValueError, lambda: declare(categories={}), 'categories={"sex": [...], "job": [...]}')
    expect(ValueError, lambda: declare_numbers(np.zeros((3, 2)), None), '"x1": (lo, hi)')


def test_only_what_is_missing_is_asked_for():
    message = message_of(ValueError, lambda: declare(classes=None))
    assert "bounds" not in message and "categories" not in message


def test_objects_of_unclear_type_must_be_named():
    for entries in ([True, 7], [None, None], [np.nan, None]):
        X = pd.DataFrame({"b": np.array(entries, dtype=object)})
        expect(ValueError, lambda X=X: declare_numbers(X), "'b'", 'bounds={"b": (lo, hi)}')
        assert declare_numbers(X, {"b": (0, 9)}).upper[0] == 9
        assert declare_numbers(X, ([0], [9])).upper[0] == 9


def test_objects_that_are_numbers_take_the_common_bounds():
    X = pd.DataFrame({"n": np.array([1, 2.5, None, Decimal(3)], dtype=object)})
    assert_array_equal(declare_numbers(X, (0, 9)).encode(X), [[1, 2.5, np.nan, 3]])


# Errors


@pytest.mark.parametrize(
    "bounds, error, parts",
    [
        ("inferred", ValueError, ['"infer"']),
        (3, TypeError, ["bounds must be", "pair"]),
        ((1, 2, 3), TypeError, ["bounds must be"]),
        ([(0, 1), 2], TypeError, ["bounds must be"]),
        (([0, 1], [1]), TypeError, ["equal lengths"]),
        (([0], [1]), ValueError, ["1 entries", "4 columns", "2 numeric"]),
        (("a", "b"), TypeError, ["bounds must be a pair"]),
        ((2, 1), ValueError, ["bounds are reversed"]),
        ((0, np.inf), ValueError, ["finite"]),
        ((np.nan, 1), ValueError, ["finite"]),
        (([0, 3], [1, 2]), ValueError, ["'hours'", "reversed"]),
        ({**BOUNDS, "age": (90, 17)}, ValueError, ["'age'", "reversed"]),
        ({**BOUNDS, "age": (0, np.nan)}, ValueError, ["'age'", "finite"]),
        ({**BOUNDS, "age": (0, 10**400)}, None, []),
        ({**BOUNDS, "age": 3}, TypeError, ["'age'", "pair"]),
        ({**BOUNDS, "age": "infer"}, TypeError, ["'age'", "pair"]),
        ({**BOUNDS, "age": ("a", "b")}, TypeError, ["'age'", "numbers"]),
        ({**BOUNDS, "wage": (0, 1)}, ValueError, ["'wage'", "'age', 'hours'"]),
        ({**BOUNDS, 0: (0, 1)}, ValueError, ["bounds names 0"]),
        ({**BOUNDS, "sex": (0, 1)}, ValueError, ["'sex'", "bounds and categories"]),
    ],
)
def test_wrong_bounds(bounds, error, parts):
    if error is None:
        assert declare(bounds=bounds).upper[0] == FLOAT32_MAX
    else:
        expect(error, lambda: declare(bounds=bounds), *parts)


def test_column_named_twice():
    X = np.zeros((3, 1))
    expect(ValueError, lambda: declare_numbers(X, {0: (0, 1), "x0": (0, 1)}), "'x0'", "twice")


@pytest.mark.parametrize(
    "categories, error, parts",
    [
        (["a"], TypeError, ["categories must be", "dict"]),
        ("auto", ValueError, ['"infer"']),
        ({**CATEGORIES, "sex": "Male"}, TypeError, ["'sex'", "list"]),
        ({**CATEGORIES, "sex": 3}, TypeError, ["'sex'", "list"]),
        ({**CATEGORIES, "sex": []}, ValueError, ["'sex'", "no categories"]),
        ({**CATEGORIES, "sex": ["a", "a"]}, ValueError, ["'sex'", "once"]),
        ({**CATEGORIES, "sex": [1, 1.0]}, ValueError, ["'sex'", "once"]),
        ({**CATEGORIES, "sex": [2**53, 2**53 + 1]}, ValueError, ["'sex'", "once"]),
        ({**CATEGORIES, "sex": ["a", None]}, ValueError, ["'sex'", "missing"]),
        ({**CATEGORIES, "sex": [np.nan]}, ValueError, ["'sex'", "missing"]),
        ({**CATEGORIES, "sex": [np.inf]}, ValueError, ["'sex'", "infinite"]),
        ({**CATEGORIES, "sex": [("a",)]}, TypeError, ["'sex'", "text, numbers or booleans"]),
        ({**CATEGORIES, "sex": [b"a"]}, TypeError, ["'sex'", "text, numbers or booleans"]),
        ({**CATEGORIES, "gender": ["a"]}, ValueError, ["'gender'", "not a column"]),
    ],
)
def test_wrong_categories(categories, error, parts):
    expect(error, lambda: declare(categories=categories), *parts)


def test_categorical_types_that_cannot_be_declared():
    empty = frame(sex=pd.Categorical([None] * N_RECORDS, []))
    intervals = frame(sex=pd.cut(np.arange(N_RECORDS), 3))
    only_job = {"job": CATEGORIES["job"]}
    expect(ValueError, lambda: declare(empty, categories=only_job), "'sex'", "no categories")
    expect(TypeError, lambda: declare(intervals, categories=only_job), "'sex'", "convert")


@pytest.mark.parametrize(
    "classes, error, parts",
    [
        (None, ValueError, ["classes=[...]"]),
        ("yes", ValueError, ['"infer"']),
        (3, TypeError, ["classes must be a list"]),
        ({"yes": 1, "no": 0}, TypeError, ["classes must be a list"]),
        (["yes"], ValueError, ["less than two classes"]),
        ([], ValueError, ["less than two classes"]),
        (["yes", "yes", "no"], ValueError, ["repeats"]),
        (["yes", None], ValueError, ["missing"]),
        (["yes", 1], ValueError, ["Unknown label type", "classes"]),
        ([True, 1], ValueError, ["Unknown label type"]),
        ([("a",), ("b",)], ValueError, ["Unknown label type"]),
        ([0.5, 1.5], ValueError, ["Unknown label type: continuous"]),
        ([0, np.inf], ValueError, ["continuous"]),
    ],
)
def test_wrong_classes(classes, error, parts):
    expect(error, lambda: declare(classes=classes), *parts)


@pytest.mark.parametrize(
    "labels, error, parts",
    [
        (None, ValueError, ["requires y to be passed, but the target y is None"]),
        (LABELS[:-1], ValueError, ["differ"]),
        (np.stack([LABELS, LABELS], axis=1), ValueError, ["1d array"]),
        (np.zeros((N_RECORDS, 1, 1)), ValueError, ["1d array"]),
        (sparse.csr_array(np.ones((1, N_RECORDS))), TypeError, ["sparse"]),
        (np.full(N_RECORDS, 1j), ValueError, ["Complex data not supported"]),
        (np.full(N_RECORDS, b"a"), TypeError, ["bytes"]),
        ([["a"], ["a", "b"]], ValueError, ["not rectangular"]),
        ("yes", ValueError, ["1d array"]),
    ],
)
def test_wrong_labels(labels, error, parts):
    expect(error, lambda: declare(y=labels), *parts)


@pytest.mark.parametrize(
    "labels, parts",
    [
        (with_canary(LABELS, CANARY_TEXT), ["not in classes"]),
        (with_canary(LABELS, CANARY_NUMBER), ["numbers, which the classes are not"]),
        (with_canary(LABELS, None), ["missing label"]),
        (with_canary(LABELS, np.nan), ["missing label"]),
        (pd.Series(with_canary(LABELS, pd.NA)), ["missing label"]),
        (pd.Series([True, None] + [True] * (N_RECORDS - 2), dtype="boolean"), ["missing label"]),
        (pd.Series(with_canary(LABELS, CANARY_TEXT), dtype="category"), ["not in classes"]),
        (pd.Series(with_canary(LABELS, None), dtype="category"), ["missing label"]),
        (with_canary(np.zeros(N_RECORDS), CANARY_NUMBER, float), ["numbers, which"]),
    ],
)
def test_labels_outside_the_classes(labels, parts):
    domain = declare(y=labels)
    expect(ValueError, lambda: domain.encode_classes(labels), *parts)


@pytest.mark.parametrize(
    "labels, parts",
    [
        (np.full(N_RECORDS, CANARY_TEXT), ["one class"]),
        (with_canary(LABELS, None), ["missing label"]),
        (with_canary(np.arange(N_RECORDS), np.nan, float), ["missing label"]),
        (with_canary(np.arange(N_RECORDS), np.inf, float), ["continuous"]),
        (with_canary(np.arange(N_RECORDS), CANARY_NUMBER, float), ["Unknown label type: contin"]),
        (with_canary(LABELS, CANARY_NUMBER), ["Unknown label type"]),
        (with_canary(LABELS, (CANARY_TEXT,)), ["Unknown label type"]),
        (pd.Series(with_canary(LABELS, None), dtype="category"), ["missing label"]),
    ],
)
def test_labels_that_cannot_be_inferred(labels, parts):
    expect(ValueError, lambda: declare(y=labels, classes="infer"), *parts)


def test_column_vector_of_labels_warns():
    X = np.zeros((2, 1))
    for labels in (np.array([[0], [1]]), pd.DataFrame({"y": [0, 1]})):
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed when a 1d"):
            domain = Domain.declare(X, labels, bounds=(0, 1), classes=[0, 1])
        with pytest.warns(DataConversionWarning):
            assert domain.encode_classes(labels).tolist() == [0, 1]


def test_encode_classes_without_classes():
    domain = Domain.from_dict({"age": [0, 1]})
    expect(ValueError, lambda: domain.encode_classes(["a"]), "declares no classes")


@pytest.mark.parametrize(
    "X, error, parts",
    [
        (np.zeros(N_RECORDS), ValueError, ["Expected 2D array", "Reshape your data"]),
        (pd.Series(np.zeros(N_RECORDS)), ValueError, ["Reshape your data"]),
        (np.float64(3), ValueError, ["Reshape your data"]),
        (np.zeros((N_RECORDS, 2, 2)), ValueError, ["dim 3"]),
        (np.zeros((0, 3)), ValueError, ["0 sample(s)", "a minimum of 1 is required"]),
        (pd.DataFrame({"a": []}), ValueError, ["0 sample(s)"]),
        (np.zeros((N_RECORDS, 0)), ValueError, ["0 feature(s) (shape=(, 0)) while a minimum of 1"]),
        (sparse.csr_array((0, 3)), ValueError, ["0 sample(s)"]),
        (sparse.coo_array(np.zeros(N_RECORDS)), ValueError, ["Expected 2D array"]),
        (np.full((N_RECORDS, 1), 1j), ValueError, ["Complex data not supported", "'x0'"]),
        (np.full((N_RECORDS, 1), b"a"), TypeError, ["'x0'", "bytes"]),
        (np.full((N_RECORDS, 1), np.datetime64("2020-01-01")), TypeError, ["'x0'", "dates"]),
        (np.full((N_RECORDS, 1), np.timedelta64(1, "D")), TypeError, ["'x0'", "durations"]),
        ([[1.0], [1.0, 2.0]] * N_RECORDS, ValueError, ["not rectangular"]),
    ],
)
def test_wrong_tables(X, error, parts):
    arguments = {"bounds": (0, 1), "categories": None}
    expect(error, lambda: declare(X, **arguments), *parts)
    expect(error, lambda: Domain.from_dict({"x0": [0, 1]}).encode(X), *parts)


def test_wrong_column_names():
    twice = pd.DataFrame(np.zeros((2, 3)), columns=["a", "b", "a"])
    expect(ValueError, lambda: declare_numbers(twice), "'a'", "rename")
    mixed = pd.DataFrame(np.zeros((2, 2)), columns=["a", 1])
    expect(TypeError, lambda: declare_numbers(mixed), "string names", "astype(str)")
    X = np.zeros((2, 2))
    for names, error in ((["a"], ValueError), (["a", "a"], TypeError), ([0, 1], TypeError)):
        expect(error, lambda names=names: declare_numbers(X, feature_names=names), "feature_names")
    named = pd.DataFrame({"a": [1.0, 2.0]})
    expect(ValueError, lambda: declare_numbers(named, feature_names=["b"]), "differ")


@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, object, "Float64"])
def test_infinite_values(infinity, dtype):
    values = pd.Series(with_canary(np.zeros(N_RECORDS), infinity, float), dtype=dtype)
    X = frame(hours=values)
    expect(ValueError, lambda: declare().encode(X), "'hours'", "infinite", "NaN")
    expect(ValueError, lambda: declare(X, bounds="infer"), "'hours'", "infinite")


def test_text_in_a_numeric_column():
    X = frame(age=with_canary(np.zeros(N_RECORDS), CANARY_TEXT))
    parts = ["'age'", "holds text", "convert it to numbers", 'categories={"age": [...]}']
    expect(ValueError, lambda: declare(X).encode(X), *parts)
    expect(ValueError, lambda: declare().encode(frame(age=str(CANARY_NUMBER))), *parts)
    coded = X.astype({"age": str}).astype({"age": "category"})
    expect(ValueError, lambda: declare().encode(coded), *parts)
    expect(ValueError, lambda: declare().encode(frame().to_numpy()[:, ::-1]), "'age'", "text")
    expect(ValueError, lambda: declare(X, bounds=(0, 99)), 'categories={"age": [...]}')


@pytest.mark.parametrize("thing", [{CANARY_TEXT: 1}, [CANARY_NUMBER], (CANARY_NUMBER,), 1j])
def test_objects_in_a_numeric_column(thing):
    values = np.zeros(N_RECORDS, dtype=object)
    values[CANARY_ROW] = thing
    X = frame(age=values)
    words = re.compile("argument must be .* string.* number")  # of scikit-learn's checks
    assert words.search(message_of(TypeError, lambda: declare(X).encode(X)))
    assert words.search(message_of(TypeError, lambda: declare(X, bounds="infer")))
    text = frame(sex=values.astype(object))
    text.loc[0, "sex"] = "Male"
    expect(TypeError, lambda: declare(text, categories="infer"), "'sex'", "objects")
    assert_array_equal(declare().encode(text)[2, [0, CANARY_ROW]], [1, -1])


def test_number_of_columns():
    domain = declare_numbers(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="X has 1 features, but Forest is expecting 2 features as"):
        domain.encode(np.zeros((3, 1)), caller="Forest")
    expect(ValueError, lambda: declare().encode(frame().to_numpy()[:, :3]), "X has 3 features")


def test_names_of_columns():
    start = "The feature names should match those that were passed during fit.\n"
    renamed = frame().rename(columns={"age": "wage"})
    expect(
        ValueError,
        lambda: declare().encode(renamed),
        start + "Feature names unseen at fit time:\n- wage\n",
        "Feature names seen at fit time, yet now missing:\n- age\n",
    )
    expect(ValueError, lambda: declare().encode(frame(extra=1)), "unseen at fit time:\n- extra\n")
    expect(ValueError, lambda: declare().encode(frame().drop(columns="job")), "missing:\n- job\n")
    many = pd.DataFrame(np.zeros((2, 9)), columns=list("stuvwxyz") + ["age"])
    expect(ValueError, lambda: declare().encode(many), "- s\n- t\n- u\n- v\n- w\n- ...\n")


def test_layout_must_be_known():
    expect(ValueError, lambda: declare().encode(frame(), layout="F"), "layout")


# Encoding


def test_room_for_more_features():
    domain = Domain.from_dict({"n": [0, 1], "c": ["a"]})
    for X in (np.zeros((3, 2)), np.zeros((3, 2), dtype=object)):
        for layout in ("columns", "rows"):
            encoded, wider = (domain.encode(X, layout=layout, spare=spare) for spare in (0, 2))
            assert wider.flags.c_contiguous
            if layout == "rows":
                encoded, wider = encoded.T, wider.T
            assert wider.shape == (4, 3)
            assert_array_equal(wider[:2], encoded)


def test_encoding_of_a_frame():
    X = frame()
    encoded = declare().encode(X)
    assert encoded.dtype == np.float32 and encoded.shape == (4, N_RECORDS)
    assert encoded.flags.c_contiguous
    assert_array_equal(encoded[0], X["age"].astype(np.float32))
    assert_array_equal(encoded[1], X["hours"].astype(np.float32))
    assert_array_equal(np.array(CATEGORIES["sex"])[encoded[2].astype(int)], X["sex"])
    assert_array_equal(np.array(CATEGORIES["job"])[encoded[3].astype(int)], X["job"])
    rows = declare().encode(X, layout="rows")
    assert rows.flags.c_contiguous
    assert_array_equal(rows, encoded.T)


@pytest.mark.parametrize(
    "convert",
    [
        pd.DataFrame.to_numpy,
        lambda X: X.astype(object),
        lambda X: X.astype({"hours": pd.SparseDtype(float, 0.0)}),
        lambda X: X.astype({"age": "float32"}),
        lambda X: X.to_numpy().tolist(),
        lambda X: np.asfortranarray(X.to_numpy()),
        lambda X: X.astype({"sex": "string", "job": "str"}),
        lambda X: X.astype({"sex": "category", "job": "category"}),
        lambda X: X.astype({"sex": pd.CategoricalDtype(["Male", "?", "Female"])}),
        lambda X: X.astype({"age": "Int64", "hours": "Float64"}),
        lambda X: X.astype({"age": "uint8"}),
        lambda X: X.astype({"age": object, "hours": object}),
        lambda X: X[["job", "hours", "age", "sex"]],
        lambda X: X.set_index(np.arange(N_RECORDS)[::-1] // 2),
    ],
)
def test_the_form_of_the_table_makes_no_difference(convert):
    assert_array_equal(declare().encode(convert(frame())), declare().encode(frame()))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numeric_arrays(dtype, order):
    X = np.arange(12).reshape(4, 3).astype(dtype, order=order)
    X.flags.writeable = False
    encoded = declare_numbers(X).encode(X)
    assert_array_equal(encoded, X.T.astype(np.float32))
    assert_array_equal(declare_numbers(X).encode(X[::2, ::-1]), X[::2, ::-1].T)


def test_memory_mapped_array(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert_array_equal(declare_numbers(mapped).encode(mapped), X.T)


def test_masked_entries_are_missing():
    X = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    assert_array_equal(declare_numbers(X).encode(X), [[1, 3], [np.nan, 4]])


def test_values_beyond_float32_become_bounds():
    domain = declare_numbers(np.zeros((2, 2)), {0: (-5, 5), 1: (0, 1e300)})
    huge = [[1e300, 1e39], [-1e39, -1e300], [7.0, -3.0]]
    expected = [[5, -5, 7], [FLOAT32_MAX, 0, -3]]
    assert_array_equal(domain.encode(huge), expected)
    assert_array_equal(domain.encode(np.array(huge, dtype=object)), expected)
    assert_array_equal(domain.encode([[10**400, -(10**400)]]), [[5], [0]])


def test_integers_are_rounded_through_64_bit_floats():
    """One missing value turns the integers of a column into floats: nothing else may change."""
    values = np.array([2**24 + 1, 2**53 + 1, 2**60 + 2**36 + 1, -(2**62) - 1])
    integers = pd.DataFrame({"i": values})
    forms = [integers, integers.astype("Int64"), integers.astype(object), integers.astype(float)]
    numeric = declare_numbers(integers, (0, 1))
    coded = declare_numbers(integers, categories={"i": [int(v) for v in values[::-1]]})
    for X in forms:
        assert_array_equal(numeric.encode(X)[0], values.astype(float).astype(np.float32))
        assert_array_equal(coded.encode(X)[0], [3, 2, 1, 0])
        joined = X.reindex(range(5))
        assert_array_equal(numeric.encode(joined)[0, :4], numeric.encode(X)[0])
        assert_array_equal(coded.encode(joined)[0, :4], [3, 2, 1, 0])
    assert_array_equal(coded.encode([[2**53]]), coded.encode(np.array([[2**53]], dtype=object)))


@pytest.mark.parametrize(
    "values",
    [
        np.array([None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32("nan")], object),
        np.full(6, np.nan),
        np.full(6, np.nan, dtype=np.float32),
        pd.array([None] * 6, dtype="Int64"),
        pd.array([None] * 6, dtype="boolean"),
        pd.array([None] * 6, dtype="string"),
        pd.Categorical([None] * 6, []),
        pd.Categorical([None] * 6, [1, 2]),
    ],
)
def test_missing_values(values):
    X = pd.DataFrame({"number": values, "text": values})
    domain = Domain.from_dict({"number": [0, 1], "text": ["a", "b"]})
    assert np.isnan(domain.encode(X)).all()


@pytest.mark.parametrize(
    "values, expected",
    [
        (np.array([1, 2, 3]), [0, 1, -1]),
        (np.array([1.0, 2.0, 2.5]), [0, 1, -1]),
        (np.array([1, 2, 300], dtype=np.float32), [0, 1, -1]),
        (np.array([True, False]), [0, -1]),
        (np.array([1, 2.0, True, "1", "a", Decimal(2)], dtype=object), [0, 1, 0, -1, 2, 1]),
        (np.array(["a", "1"]), [2, -1]),
        (np.array([np.float32(2), np.int8(1), np.str_("a")], dtype=object), [1, 0, 2]),
        (np.array([np.inf, -np.inf, 0.5]), [-1, -1, 3]),
        (np.array([np.inf, {}, []], dtype=object), [-1, -1, -1]),
        (pd.array([1, None, 5], dtype="Int64"), [0, np.nan, -1]),
        (pd.array([True, None], dtype="boolean"), [0, np.nan]),
        (pd.array(["a", None, "b"], dtype="string"), [2, np.nan, -1]),
        (pd.Categorical([2, 1, None, 9]), [1, 0, np.nan, -1]),
        (pd.Categorical(["a", None, "b"]), [2, np.nan, -1]),
        (pd.date_range("2020", periods=2).astype(object), [-1, -1]),
    ],
)
def test_look_up_of_categories(values, expected):
    domain = Domain.from_dict({"c": {"categories": [1, 2, "a", 0.5]}})
    assert_array_equal(domain.encode(pd.DataFrame({"c": values}))[0], expected)


def test_numbers_among_text_categories_only_are_unknown():
    domain = Domain.from_dict({"c": ["1", "2"]})
    assert_array_equal(domain.encode([[1], [2]])[0], [-1, -1])


def test_nothing_of_a_feature_is_an_error():
    X = frame(
        age=[-1e30, 1e30, np.nan] + [1e308] * (N_RECORDS - 3),
        sex=[None, pd.NA, "unheard of"] + [3] * (N_RECORDS - 3),
    )
    for domain in (declare(X), declare()):
        assert_array_equal(domain.encode(X)[2, :4], [np.nan, np.nan, -1, -1])


def test_warnings_are_not_caused_by_values():
    X = frame(hours=with_canary(np.zeros(N_RECORDS), 1e300, float))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        declare(X).encode(X)
    assert not caught


number = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_infinity=False),
)
category = st.one_of(
    st.sampled_from(["a", "b", "unheard of", 1, 1.0, 2, True, None, pd.NA]), st.text(), number
)
records = st.lists(st.tuples(number, category, category), min_size=1, max_size=30)
DECLARATION = {"n": [-1, 1], "c": {"categories": ["a", 1, 2.5]}, "d": ["b", "a"]}


def table(rows):
    columns = {}
    for j, name in enumerate("ncd"):
        columns[name] = np.empty(len(rows), dtype=object)
        columns[name][:] = [row[j] for row in rows]
    return pd.DataFrame(columns)


@settings(deadline=None, max_examples=200)
@given(records, st.data())
def test_records_are_encoded_one_by_one(rows, data):
    domain = Domain.from_dict(DECLARATION)
    X = table(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    encoded = domain.encode(X)
    part = domain.encode(X.iloc[chosen])
    assert encoded[:, chosen].tobytes() == part.tobytes()
    inferred = domain.encode(X.iloc[chosen].infer_objects())
    assert_array_equal(inferred, part)
    assert_array_equal(domain.encode(X.to_numpy()), encoded)


@settings(deadline=None, max_examples=100)
@given(records, st.permutations(["n", "c", "d"]))
def test_columns_of_a_frame_are_found_by_name(rows, order):
    domain = Domain.from_dict(DECLARATION)
    X = table(rows)
    assert_array_equal(domain.encode(X[order]), domain.encode(X))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(width=32, allow_infinity=False), min_size=1))
def test_32_bit_floats_are_kept(values):
    X = np.array(values, dtype=np.float32).reshape(-1, 1)
    domain = Domain.from_dict({"x": [0, 1]})
    for table_ in (X, X.astype(np.float64), X.astype(object)):
        assert_array_equal(domain.encode(table_)[0], X[:, 0])


floats = st.one_of(
    st.floats(),
    st.sampled_from([-1.0, 0.0, -0.0, 1.0, 2.0, 2.5, 1e300, -1e300, 3.5e38, 1e-46]),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(floats.filter(lambda x: abs(x) != np.inf), floats, floats), min_size=1),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(["C", "F", "strided", "reversed"]),
)
def test_an_array_is_encoded_as_its_columns(rows, dtype, order):
    domain = Domain.from_dict(
        {"n": [-1, 1], "c": {"categories": [2.5, "a", 0, 1, -1, 16777217]}, "d": ["b"]}
    )
    with np.errstate(over="ignore"):
        X = np.array(rows).astype(dtype)
    X[np.isinf(X[:, 0]), 0] = 0.0
    expected = np.empty((3, len(X)), dtype=np.float32)
    for j in range(3):
        domain._encode_column(j, X[:, j], expected[j])
    if order == "strided":
        X = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif order == "reversed":
        X = X[::-1].copy()[::-1]
    else:
        X = np.asarray(X, order=order)
    X.setflags(write=False)
    assert domain.encode(X).tobytes() == expected.tobytes()
    assert domain.encode(X, layout="rows").tobytes() == expected.T.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_of_many_rows(dtype):
    # More rows than the kernel takes at a time.
    domain = Domain.from_dict({"n": [-1, 1], "c": {"categories": list(range(5))}})
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=1000), rng.integers(-1, 7, 1000)], axis=1).astype(dtype)
    expected = np.stack([X[:, 0], np.where((X[:, 1] >= 0) & (X[:, 1] < 5), X[:, 1], -1)])
    assert_array_equal(domain.encode(X), expected.astype(np.float32))
    X[999, 0] = np.inf
    expect(ValueError, lambda: domain.encode(X), "'n'", "infinite")


def test_what_the_kernel_needs_is_neither_pickled_nor_compared():
    domain, same = (Domain.from_dict({"n": [0, 1], "c": ["a"]}) for _ in range(2))
    domain.encode(np.zeros((1, 2)))
    assert domain == same
    assert pickle.dumps(domain) == pickle.dumps(same)
    restored = pickle.loads(pickle.dumps(domain))
    assert restored == domain
    assert_array_equal(restored.encode(np.ones((1, 2))), domain.encode(np.ones((1, 2))))


# Other forms


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.text(),
        st.one_of(
            st.tuples(
                st.floats(allow_nan=False, allow_infinity=False),
                st.floats(allow_nan=False, allow_infinity=False),
            ).map(sorted),
            st.lists(st.text(), min_size=1, unique=True),
            st.fixed_dictionaries(
                {"categories": st.lists(st.integers(-(2**53), 2**53), min_size=1, unique=True)}
            ),
        ),
        min_size=1,
    ),
    st.one_of(
        st.none(),
        st.just([False, True]),
        st.lists(st.integers(0, 99), min_size=2, unique=True),
        st.just(["a", "b"]),
    ),
)
def test_json_round_trip(declaration, classes):
    domain = Domain.from_dict(declaration, classes=classes)
    text = json.dumps(domain.to_dict(), allow_nan=False)
    again = Domain.from_dict(json.loads(text))
    assert again == domain
    assert_array_equal(again.lower, domain.lower)
    assert_array_equal(again.upper, domain.upper)
    assert again.categories == domain.categories
    bounds, categories = Domain.parse_declaration(json.loads(text))
    assert set(bounds) | set(categories) == set(declaration)
    assert pickle.loads(pickle.dumps(domain)) == domain


def test_round_trip_keeps_what_was_inferred():
    with pytest.warns(PrivacyLeakWarning):
        domain = Domain.declare([[1.5], [2.5]], ["a", "b"], bounds="infer", classes="infer")
    again = Domain.from_dict(json.loads(json.dumps(domain.to_dict())))
    assert again == domain and again.inferred == ("bounds of x0", "classes") and not again.named


def test_parsed_declaration_declares_a_frame():
    declaration = {"age": [17, 90], "hours": {"bounds": [0, 99]}, **CATEGORIES}
    bounds, categories = Domain.parse_declaration(declaration)
    assert bounds == BOUNDS and categories == CATEGORIES
    assert declare(bounds=bounds, categories=categories) == declare()
    assert Domain.from_dict(declaration, classes=CLASSES) == declare()


@pytest.mark.parametrize(
    "declaration, error, parts",
    [
        ([], TypeError, ["dict"]),
        ({}, ValueError, ["no columns"]),
        ({3: [0, 1]}, TypeError, ["text"]),
        ({"a": [0, 1, 2]}, ValueError, ["'a'", '"categories"']),
        ({"a": []}, ValueError, ["'a'"]),
        ({"a": [True, False]}, ValueError, ["'a'"]),
        ({"a": ["x", 1]}, ValueError, ["'a'"]),
        ({"a": "x"}, ValueError, ["'a'"]),
        ({"a": {"bound": [0, 1]}}, ValueError, ["'a'"]),
        ({"a": {"categories": "xy"}}, ValueError, ["'a'"]),
        ({"a": {"bounds": [0, 1], "categories": [0, 1]}}, ValueError, ["'a'"]),
        ({"a": [1, 0]}, ValueError, ["'a'", "reversed"]),
        ({"a": ["x", "x"]}, ValueError, ["'a'", "once"]),
        ({"version": 99, "features": {}}, ValueError, ["version"]),
        ({"version": 1}, TypeError, ["features"]),
    ],
)
def test_wrong_declarations(declaration, error, parts):
    expect(error, lambda: Domain.from_dict(declaration), *parts)


def test_from_dict_cannot_infer():
    expect(ValueError, lambda: Domain.from_dict({"a": [0, 1]}, classes="infer"), "needs a table")


def test_equality():
    assert declare() == declare()
    assert declare() != declare(classes=["no", "perhaps", "yes"])
    assert declare() != "domain"


def test_categories_may_be_a_set():
    # In sorted order, as that of a set differs from process to process.
    for values in ({"Male", "Female"}, frozenset({"Female", "Male"})):
        domain = declare(categories={**CATEGORIES, "sex": values})
        assert domain.categories[2] == ("Female", "Male")
    mixed = Domain.declare([["b"]], [0], categories={0: {"b", 2, "a", 1}}, classes=[0, 1])
    assert mixed.categories == ((1, 2, "a", "b"),)


def test_json_text_and_file(tmp_path):
    domain = declare(categories={**CATEGORIES, "job": ["Bäcker", "nurse"]})
    text = domain.to_json(tmp_path / "people.json")
    assert (tmp_path / "people.json").read_text(encoding="utf-8") == text
    assert "Bäcker" in text and json.loads(text) == domain.to_dict()
    for source in (text, "\n " + text, tmp_path / "people.json", str(tmp_path / "people.json")):
        assert Domain.from_json(source) == domain
    hand_made = Domain.from_json('{"age": [17, 90]}', classes=[0, 1], target_bounds=(0, 9))
    assert hand_made.classes.tolist() == [0, 1] and hand_made.target_bounds == (0, 9)
    with pytest.raises(FileNotFoundError):
        Domain.from_json(tmp_path / "none.json")
    for wrong, part in (("{'age'", "not valid JSON"), ('{"a": [0, 1], "a": [0, 2]}', "twice")):
        expect(ValueError, lambda wrong=wrong: Domain.from_json(wrong), part)


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"inferred": 5}, "inferred"),
        ({"inferred": "bounds of a"}, "inferred"),
        ({"inferred": [1]}, "inferred"),
        ({"named": "yes"}, "named"),
        ({"target_bounds": "wide"}, "only text"),
        ({"target_bounds": [1]}, "target_bounds"),
        ({"classes": 3}, "classes"),
    ],
)
def test_wrong_entries_beside_the_columns(changes, part):
    whole = {"version": 1, "features": {"a": [0, 1]}, **changes}
    expect((TypeError, ValueError), lambda: Domain.from_dict(whole), part)


@pytest.mark.parametrize(
    "fields, part",
    [
        ((("a", "a"), (0, 0), (1, 1), (None, None)), "distinct"),
        (((1,), (0,), (1,), (None,)), "distinct"),
        ((("a",), (0, 0), (1, 1), (None,)), "for each of its columns"),
        ((("a",), (0,), (1,), ()), "for each of its columns"),
    ],
)
def test_wrong_fields(fields, part):
    expect((TypeError, ValueError), lambda: Domain(*fields), part)


def test_match_keeps_what_is_not_the_tables():
    domain = Domain.from_dict({"hours": [0, 99], "age": [17, 90], **CATEGORIES})
    matched = domain.match(frame(), LABELS, classes=CLASSES)
    assert matched == declare() and domain.classes is None
    assert matched.match(frame(), LABELS) == matched
    assert matched.match(frame(), LABELS, classes=["yes", "no"]) == matched
    expect(ValueError, lambda: domain.match(frame(), LABELS), "classes=[...]")
    expect(ValueError, lambda: matched.match(frame(), LABELS[:-1]), "differ in their numbers")
    expect(ValueError, lambda: domain.match(np.zeros((N_RECORDS, 2)), LABELS), "2 columns", "4")
    expect(
        ValueError,
        lambda: domain.match(frame(), LABELS, target_bounds="infer", regression=True),
        "text",
    )


def test_from_frame_without_labels_and_with_declared_classes():
    domain = Domain.from_frame(frame(), classes=CLASSES, bounds=BOUNDS)
    assert domain == declare()
    assert Domain.from_frame(frame(), bounds=(0, 99)).lower.tolist() == [0, 0, 0, 0]


def test_scored_labels_may_be_unknown_but_of_the_kind_of_the_classes():
    domain = declare()
    assert domain.encode_classes(["no", "maybe"], allow_unknown=True).tolist() == [0, -1]
    expect(ValueError, lambda: domain.encode_classes([0, 1], allow_unknown=True), "holds numbers")
    expect(ValueError, lambda: domain.encode_classes(["no", None], allow_unknown=True), "missing")
    expect(ValueError, lambda: domain.encode_classes(["no"], n_records=3), "differ")
    numbered = declare_numbers(np.zeros((4, 1)))
    for labels in ([True, False], [1.0, 0.0], pd.Series([1, 0], dtype="Int64")):
        assert numbered.encode_classes(labels, allow_unknown=True).tolist() == [1, 0]
    expect(ValueError, lambda: numbered.encode_classes(["0"], allow_unknown=True), "holds text")


def test_a_wide_domain_shows_its_first_columns():
    text = repr(Domain.from_dict({f"f{j}": [0, 1] for j in range(500)}))
    assert len(text.splitlines()) < 50 and "... 460 more columns" in text


def test_repr_is_short_and_readable():
    domain = Domain.from_dict(
        {"age": [17.5, 90], "letter": list("abcdefghij")}, classes=["no", "yes"]
    )
    assert repr(domain) == (
        "Domain(\n  age: 17.5 to 90\n  letter: 'a', 'b', 'c', 'd', 'e', 'f', ...\n"
        "  classes: 'no', 'yes'\n)"
    )
    with pytest.warns(PrivacyLeakWarning):
        assert "read from the data: bounds of x0" in repr(declare_numbers([[1], [2]], "infer"))


def test_module_needs_no_frame_library():
    code = (
        "import sys\n"
        "sys.modules['pandas'] = sys.modules['polars'] = None\n"
        "from lumberjack.domain import Domain\n"
        "sys.modules['narwhals'] = None\n"
        "domain = Domain.declare([[1, 'a']] * 2, [0, 1], bounds={0: (0, 1)},"
        " categories={1: ['a']}, classes=[0, 1])\n"
        "class Frame:\n"
        "    columns = ['x0', 'x1']\n"
        "try:\n"
        "    domain.encode(Frame())\n"
        "except TypeError as error:\n"
        "    assert 'install narwhals' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_polars
def test_polars():
    import polars as pl

    X = frame(flag=[True, None] + [False] * (N_RECORDS - 2))
    X = X.astype({"sex": object, "job": object, "age": "Int64"})
    X.loc[3, "sex"] = X.loc[3, "job"] = None
    X.loc[4, "age"] = pd.NA
    other = pl.DataFrame(
        {
            "age": pl.Series([None if v is pd.NA else int(v) for v in X["age"]], dtype=pl.Int64),
            "hours": X["hours"].to_numpy(),
            "sex": pl.Series(X["sex"].tolist(), dtype=pl.Enum(["Male", "Female"])),
            "job": pl.Series(X["job"].tolist(), dtype=pl.String),
            "flag": pl.Series(X["flag"].tolist(), dtype=pl.Boolean),
        }
    )
    labels = pl.Series(LABELS.tolist())
    assert Domain.declare(
        other, labels, bounds=BOUNDS, categories=CATEGORIES, classes=CLASSES
    ) == declare(X)
    domain = declare(other, categories={"job": CATEGORIES["job"]})
    assert domain.categories[2] == ("Male", "Female")
    assert_array_equal(declare(X).encode(other), declare(X).encode(X))
    assert_array_equal(
        declare(X).encode(other[["job", "flag", "sex", "hours", "age"]]), declare(X).encode(X)
    )
    assert_array_equal(domain.encode_classes(labels), domain.encode_classes(LABELS))
    coded = other.with_columns(pl.col("sex").cast(pl.String).cast(pl.Categorical))
    assert_array_equal(declare(X).encode(coded), declare(X).encode(X))
    expect(ValueError, lambda: declare(coded, categories={"job": ["a"]}), '"sex": [...]')
    with pytest.warns(PrivacyLeakWarning):
        inferred = declare(coded, bounds="infer", categories="infer", y=labels, classes="infer")
    assert inferred.categories[2] == ("Female", "Male")
    expect(TypeError, lambda: declare(other.lazy()), "collect")


def test_a_list_of_booleans_has_no_type_of_its_own():
    # One more record must not change what is declared.
    lower = [
        Domain.declare(X, [0] * len(X), bounds=(-1, 10), classes=[0, 1]).lower.tolist()
        for X in ([[True], [False]], [[True], [False], [2]], [[True], [False], [None]])
    ]
    assert lower == [[-1.0]] * 3


def test_columns_without_names_are_named_by_number():
    for wrong, part in (([5], "its columns are 0 to 1$"), ([1, 1], "column 1 twice$")):
        with pytest.raises(ValueError, match=part):
            Domain.declare(np.zeros((3, 2)), [0, 1, 0], categorical_features=wrong, bounds=(0, 1))


def test_target_bounds_make_a_domain_of_a_regression():
    domain = Domain.from_frame(
        pd.DataFrame({"a": [0.0, 1.0]}), [0.5, 0.5], bounds=(0, 1), target_bounds=(0, 2)
    )
    assert domain.target_bounds == (0, 2) and domain.classes is None


@pytest.mark.parametrize(
    "content", [b"\xff\xfe{}", b'{"a": ' + b"[" * 100_000], ids=["not UTF-8", "deep"]
)
def test_files_that_are_no_json_are_refused(tmp_path, content):
    (tmp_path / "domain.json").write_bytes(content)
    with pytest.raises(ValueError, match="domain"):
        Domain.from_json(tmp_path / "domain.json")
