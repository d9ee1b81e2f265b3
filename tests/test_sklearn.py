"""At home in scikit-learn: its checks, and its pipelines, searches, thresholds and calibration."""

import inspect
import math
import os
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, r2_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from lumberjack import (
    Domain,
    LumberjackClassifier,
    LumberjackRegressor,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyLedger,
)

N_RECORDS = 317
INFER = {"bounds": "infer", "categories": "infer"}
LARGE = {"epsilon": 25.0, "delta": 0.5}  # the largest that finite precision carries, about
NOISELESS = {"epsilon": math.inf, "threshold": 1}


def table(n_records=N_RECORDS, seed=0):
    """Points in the unit cube, and whether the first coordinate is large."""
    X = np.random.default_rng(seed).random((n_records, 3))
    return X, (X[:, 0] > 0.5).astype(int)


def classifier(**changes):
    return LumberjackClassifier(
        **{"n_estimators": 5, "epsilon": 12.0, "bounds": (0, 1), "classes": [0, 1], **changes}
    )


def regressor(**changes):
    return LumberjackRegressor(
        **{"n_estimators": 5, "epsilon": 12.0, "bounds": (0, 1), "target_bounds": (0, 1), **changes}
    )


ESTIMATORS = {"classifier": classifier, "regressor": regressor}


# The checks


def all_checks(estimators):
    """`parametrize_with_checks` with a list: newer pytests warn of the generator of older ones."""
    mark = parametrize_with_checks(estimators)
    names, values = mark.args
    return pytest.mark.parametrize(names, list(values), **mark.kwargs)


CHECKED = [
    cls(**INFER, **own, **budget)
    for cls, own in (
        (LumberjackClassifier, {"classes": "infer"}),
        (LumberjackRegressor, {"target_bounds": "infer"}),
    )
    for budget in ({}, LARGE, NOISELESS)
]


@pytest.mark.filterwarnings("ignore::lumberjack.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore:Can't check dok sparse matrix for nan or inf")
@all_checks(CHECKED)
def test_the_checks_of_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        return  # below, as it is skipped without a setting that must be made before the imports
    check(estimator)


def test_the_check_of_array_api_input():
    code = (
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from sklearn.utils.estimator_checks import check_estimator\n"
        "from lumberjack import LumberjackClassifier, LumberjackRegressor\n"
        "own = dict(bounds='infer', categories='infer', epsilon=25.0, delta=0.5)\n"
        "for model in (LumberjackClassifier(classes='infer', **own),\n"
        "              LumberjackRegressor(target_bounds='infer', **own)):\n"
        "    results = check_estimator(model)\n"
        "    assert len(results) > 40\n"
        "    assert {own['status'] for own in results} == {'passed'}\n"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)
def test_tags(make):
    for epsilon, poor in ((1.0, True), (25.0, False), (math.inf, False), ("1", False)):
        tags = get_tags(make(epsilon=epsilon))
        own = tags.classifier_tags or tags.regressor_tags
        assert own.poor_score == poor
        assert tags.input_tags.allow_nan and tags.input_tags.categorical
        assert tags.input_tags.sparse and not tags.non_deterministic
        assert tags.target_tags.required and not tags.target_tags.multi_output


# Parameters and signatures


@pytest.mark.parametrize("cls", [LumberjackClassifier, LumberjackRegressor])
def test_fit_takes_no_weights_and_says_why(cls):
    assert list(inspect.signature(cls.fit).parameters) == ["self", "X", "y"]
    X, y = table()
    model = cls(bounds=(0, 1))
    with pytest.raises(TypeError, match="sample_weight is no parameter.* class_weight= is free"):
        model.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        model.fit(X, y, weights=np.ones(len(y)))
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize("cls", [LumberjackClassifier, LumberjackRegressor])
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("warm_start", "PrivacyLedger"),
        ("monotonic_cst", "no order among leaves"),
        ("min_samples_leaf", "threshold="),
        ("max_features", "splitter="),
        ("bootstrap", "all records"),
    ],
)
def test_parameters_of_other_forests_are_refused_with_the_reason(cls, name, part):
    with pytest.raises(TypeError, match=f"{name} is no parameter of these forests.*{part}"):
        cls(**{name: True})
    with pytest.raises(ValueError, match=f"{name} is no parameter of these forests.*{part}"):
        cls().set_params(**{name: True})
    with pytest.raises(ValueError, match=f"{name} is no parameter"):
        make_pipeline(cls()).set_params(**{f"{cls.__name__.lower()}__{name}": True})
    assert name not in cls().get_params()


@pytest.mark.parametrize("cls", [LumberjackClassifier, LumberjackRegressor])
def test_mistyped_parameters_are_refused(cls):
    with pytest.raises(TypeError, match="epsilom"):
        cls(epsilom=0.1)
    with pytest.raises(ValueError, match="epsilom"):
        cls().set_params(epsilom=0.1)


@pytest.mark.parametrize(
    ("cls", "asked"),
    [(LumberjackClassifier, "classes=[...]"), (LumberjackRegressor, "target_bounds=(lo, hi)")],
)
def test_without_arguments_fit_asks_for_the_declarations(cls, asked):
    X, y = table()
    with pytest.raises(ValueError) as caught:
        cls().fit(X, y)
    for part in ('bounds={"x0": (lo, hi), "x1": (lo, hi), "x2": (lo, hi)}', asked):
        assert part in str(caught.value)


@pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)
def test_parameters_between_fits(make):
    X, y = table()
    model = make()
    before = dict(model.get_params())
    model.fit(X, y)
    assert all(model.get_params()[name] is value for name, value in before.items())
    model.set_params(epsilon=3.0, n_estimators=3, splitter="random").fit(X, y)
    assert model.privacy_.epsilon == 3.0 and len(model.trees_) == 3 and model.guide_ is None
    copy = clone(model)
    assert repr(copy.get_params()) == repr(model.get_params())
    with pytest.raises(NotFittedError):
        copy.predict(X)


def test_column_vector_of_labels_warns_once_at_the_line_of_the_caller():
    X, y = table()
    for model in (classifier(), regressor()):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y[:, None])
        assert [own.category for own in caught] == [DataConversionWarning]
        assert caught[0].filename == __file__


@pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)
def test_html_and_repr(make):
    X, y = table()
    for model in (make(), make().fit(X, y), make_pipeline(StandardScaler(), make())):
        html = model._repr_html_()
        assert "Lumberjack" in html and "n_estimators" in html + repr(model)
    assert repr(LumberjackClassifier()) == "LumberjackClassifier()"


# Input


@pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)
@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda X: X.astype(np.float64),
        lambda X: X.astype(np.int64),
        lambda X: X.astype(np.uint8),
        lambda X: X.astype(object),
        lambda X: X.tolist(),
        lambda X: np.repeat(X, 2, axis=0)[::2],
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_array,
        lambda X: sparse.csr_array(X.astype(np.int8)),
        pd.DataFrame,
    ],
)
def test_forms_of_a_table_make_no_difference(make, convert):
    X, y = table()
    X = np.round(X * 100).astype(np.float32)
    made = [fit_seeded(make(bounds=(0, 100), random_state=3), own, y) for own in (X, convert(X))]
    expected = made[0].predict(X)
    assert np.array_equal(made[1].predict(convert(X)), expected)
    assert np.array_equal(made[0].predict(convert(X)), expected)


def fit_seeded(model, X, y):
    with pytest.warns(PrivacyLeakWarning, match="random_state is given"):
        return model.fit(X, y)


def test_booleans():
    X, y = table()
    X = X > 0.5
    for own in (X, sparse.csr_array(X), pd.DataFrame(X)):
        model = classifier(bounds=None).fit(own, y)
        assert model.domain_.upper.tolist() == [1, 1, 1]
        assert model.score(own, y) > 0.9


def test_read_only_and_memory_mapped(tmp_path):
    X, y = table()
    joblib.dump((X, y), tmp_path / "table")
    X_mapped, y_mapped = joblib.load(tmp_path / "table", mmap_mode="r")
    assert isinstance(X_mapped, np.memmap)
    X.setflags(write=False)
    y.setflags(write=False)
    for make in ESTIMATORS.values():
        models = [fit_seeded(make(random_state=1), *own) for own in ((X, y), (X_mapped, y_mapped))]
        assert np.array_equal(models[0].predict(X), models[1].predict(X_mapped))


def test_memory_mapped_model(tmp_path):
    X, y = table()
    for make in ESTIMATORS.values():
        model = make().fit(X, y)
        joblib.dump(model, tmp_path / "model")
        mapped = joblib.load(tmp_path / "model", mmap_mode="r")
        assert np.array_equal(mapped.predict(X), model.predict(X))
        assert np.array_equal(mapped.apply(X), model.apply(X))


def test_one_hot_columns_of_a_sparse_pipeline():
    X = pd.DataFrame({"job": ["clerk", "nurse", "smith", "nurse"] * 100})
    y = (X["job"] == "nurse").astype(int)
    jobs = [["clerk", "nurse", "smith"]]
    pipeline = make_pipeline(OneHotEncoder(categories=jobs), classifier())
    assert sparse.issparse(pipeline[:-1].fit_transform(X))
    assert pipeline.fit(X, y).score(X, y) > 0.9


# Meta-estimators


def people(n_records=2000):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.integers(17, 91, n_records),
            "hours": rng.uniform(0, 99, n_records),
            "job": rng.choice(["clerk", "nurse", "smith"], n_records),
        }
    )
    return X, np.where((X["age"] > 50) ^ (X["job"] == "nurse"), "yes", "no")


def test_column_transformer_with_frames():
    X, y = people()
    jobs = OrdinalEncoder(
        categories=[["clerk", "nurse", "smith"]],
        handle_unknown="use_encoded_value",
        unknown_value=-1,
    )
    columns = ColumnTransformer(
        [("job", jobs, ["job"])], remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    model = classifier(
        bounds={"age": (17, 90), "hours": (0, 99)},
        categories={"job": range(3)},
        classes=["no", "yes"],
    )
    pipeline = make_pipeline(columns, model).fit(X, y)
    assert pipeline[-1].feature_names_in_.tolist() == ["job", "age", "hours"]
    assert pipeline[-1].n_features_in_ == 3
    assert pipeline.score(X, y) > 0.8
    assert np.array_equal(pipeline.predict(X[["hours", "job", "age"]]), pipeline.predict(X))


def test_feature_names():
    X, y = table()
    model = classifier().fit(X, y)
    assert model.n_features_in_ == 3 and not hasattr(model, "feature_names_in_")
    model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")


def test_grid_search_and_cross_validation():
    X, y = table(600)
    search = GridSearchCV(classifier(), {"max_depth": [3, 7]}, cv=2, error_score="raise")
    assert search.fit(X, y).best_estimator_.max_depth in (3, 7)
    assert search.score(X, y) > 0.8
    assert (cross_val_score(regressor(), X, X[:, 0], cv=2) > 0).all()
    assert cross_val_predict(classifier(), X, y, cv=2, method="predict_proba").shape == (600, 2)
    with pytest.raises(ValueError, match="min_samples_leaf is no parameter"):
        GridSearchCV(classifier(), {"min_samples_leaf": [1, 2]}, cv=2).fit(X, y)


def test_a_domain_survives_clones_and_searches():
    X, y = table(600)
    domain = Domain.from_dict({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, classes=[0, 1])
    model = LumberjackClassifier(5, epsilon=12.0, domain=domain)
    model.fit(X, y).predict(X)
    assert clone(model).domain == domain and clone(model).domain is not domain
    search = GridSearchCV(model, {"max_depth": [3, 7]}, cv=2, n_jobs=2).fit(X, y)
    assert search.best_estimator_.domain_ == domain
    assert "a: 0 to 1" in repr(model)


def test_other_meta_estimators():
    X, y = table(600)
    many = MultiOutputClassifier(classifier()).fit(X, np.column_stack([y, 1 - y]))
    assert many.predict(X).shape == (600, 2)
    scaled = TransformedTargetRegressor(
        regressor(target_bounds=(-2, 2)), transformer=StandardScaler()
    ).fit(X, X[:, 0])
    assert scaled.score(X, X[:, 0]) > 0.3


def test_parallel_search():
    X, y = table(600)
    search = GridSearchCV(classifier(), {"max_depth": [3, 7]}, cv=2, n_jobs=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_feature_importances_for_selection():
    X, y = table(4000)
    model = classifier(n_estimators=20, splitter="random").fit(X, y)
    importances = model.feature_importances_
    assert importances.shape == (3,) and importances.sum() == pytest.approx(1)
    assert importances.argmax() == 0
    selected = SelectFromModel(model, prefit=True, threshold="mean").transform(X)
    assert np.array_equal(selected, X[:, :1])
    for unfitted in (classifier(), regressor()):
        assert not hasattr(unfitted, "feature_importances_")
        with pytest.raises(NotFittedError):
            _ = unfitted.feature_importances_


def skewed(n_records, seed):
    """Public or private records of which one in ten is of class 1, as noisy as can be."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_records, 3))
    return X, (rng.random(n_records) < 0.2 * X[:, 0]).astype(int)


def test_calibration_on_public_records():
    X, y = skewed(3000, 0)
    X_public, y_public = skewed(3000, 1)
    X_test, y_test = skewed(20_000, 2)
    model = classifier(epsilon=1.0, class_weight={0: 1, 1: 9}).fit(X, y)
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(X_public, y_public)
    losses = [
        brier_score_loss(y_test, own.predict_proba(X_test)[:, 1]) for own in (model, calibrated)
    ]
    assert losses[1] < losses[0]
    means, shares = calibration_curve(
        y_test, calibrated.predict_proba(X_test)[:, 1], n_bins=5, strategy="quantile"
    )
    assert abs(means - shares).max() < 0.07
    inside = CalibratedClassifierCV(classifier(), cv=2).fit(X, y)
    assert inside.predict_proba(X_test).shape == (20_000, 2)


def test_probabilities_are_calibrated_at_a_large_epsilon():
    X, y = skewed(40_000, 0)
    X_test, y_test = skewed(40_000, 1)
    model = classifier(n_estimators=20).fit(X, y)
    means, shares = calibration_curve(
        y_test, model.predict_proba(X_test)[:, 1], n_bins=5, strategy="quantile"
    )
    assert abs(means - shares).max() < 0.05


def test_decision_thresholds():
    X, y = skewed(3000, 0)
    X_public, y_public = skewed(3000, 1)
    model = classifier().fit(X, y)
    assert model.predict(X).mean() < 0.02
    fixed = FixedThresholdClassifier(FrozenEstimator(model), threshold=0.1).fit(X, y)
    expected = model.predict_proba(X)[:, 1] >= 0.1
    assert np.array_equal(fixed.predict(X), expected) and 0.2 < expected.mean() < 0.8
    tuned = TunedThresholdClassifierCV(
        FrozenEstimator(model), scoring="balanced_accuracy", cv="prefit", refit=False
    ).fit(X_public, y_public)
    assert 0.02 < tuned.best_threshold_ < 0.3


def test_a_threshold_tuned_on_private_records_is_charged_fit_by_fit():
    X, y = skewed(600, 0)
    with PrivacyLedger(epsilon=8, delta=1e-5) as ledger:
        epsilon, delta = ledger.share(3)
        model = classifier(epsilon=epsilon, delta=delta)
        TunedThresholdClassifierCV(model, cv=2).fit(X, y)
        assert [event.kind for event in ledger.events].count("fit") == 3
        with pytest.raises(PrivacyBudgetError):
            TunedThresholdClassifierCV(model, cv=2).fit(X, y)


# Metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)
def test_weights_are_not_routed_to_fit(make, routing):
    X, y = table()
    weights = np.ones(len(y))
    assert not hasattr(make(), "set_fit_request")
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        make_pipeline(make()).fit(X, y, sample_weight=weights)
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        GridSearchCV(make(), {"max_depth": [3]}, cv=2).fit(X, y, sample_weight=weights)


def test_weights_are_routed_to_score(routing):
    X, y = table()
    model = classifier().set_score_request(sample_weight=True)
    found = cross_val_score(model, X, y, cv=2, params={"sample_weight": np.ones(len(y))})
    assert found.shape == (2,)


def test_weights_without_routing():
    X, y = table()
    with pytest.raises(TypeError, match="sample_weight is no parameter"):
        pipeline = make_pipeline(classifier())
        pipeline.fit(X, y, lumberjackclassifier__sample_weight=np.ones(len(y)))


# Scores


def test_scores_are_those_of_scikit_learn():
    X, y = table(600)
    weights = np.random.default_rng(0).random(600)
    model, other = classifier(epsilon=2.0).fit(X, y), regressor().fit(X, X[:, 0])
    for own in (None, weights):
        expected = accuracy_score(y, model.predict(X), sample_weight=own)
        assert model.score(X, y, sample_weight=own) == pytest.approx(expected)
        assert type(model.score(X, y, own)) is type(other.score(X, X[:, 0], own)) is float
        expected = r2_score(X[:, 0], other.predict(X), sample_weight=own)
        assert other.score(X, X[:, 0], sample_weight=own) == pytest.approx(expected)
    for labels in (y.tolist(), y.astype(bool), y.astype(float), pd.Series(y, dtype="Int64")):
        assert model.score(X, labels) == model.score(X, y)
    assert model.score(X, np.full(600, 7)) == 0, "a label that is no class is wrong"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda y: y[:-1], "differ in their numbers of records"),
        (lambda y: np.where(y == 1, "canary", "0"), "holds text"),
        (lambda y: [None, *y[1:]], "missing"),
        (lambda y: np.column_stack([y, y]), "1d array"),
    ],
)
def test_messages_of_score_tell_nothing_of_the_records(change, part):
    X, y = table()
    for model in (classifier().fit(X, y), regressor().fit(X, y)):
        with pytest.raises(ValueError, match=part) as caught:
            model.score(X, change(y))
        for own in ("canary", "316", "317"):
            assert own not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "part"),
    [
        (np.ones(N_RECORDS - 1), "one weight for each record"),
        (np.ones((N_RECORDS, 1)), "1d array"),
        (["canary"] * N_RECORDS, "numbers"),
        (-np.ones(N_RECORDS), "not negative"),
        (np.full(N_RECORDS, np.nan), "finite"),
        (np.zeros(N_RECORDS), "not all zero"),
    ],
)
def test_wrong_weights_of_score(weights, part):
    X, y = table()
    for model in (classifier().fit(X, y), regressor().fit(X, y)):
        with pytest.raises(ValueError, match=part) as caught:
            model.score(X, y, sample_weight=weights)
        assert "canary" not in str(caught.value) and "31" not in str(caught.value)


# Class weights


@pytest.mark.parametrize("splitter", ["guided", "random"])
def test_class_weights_shift_the_prior(splitter):
    X, y = skewed(2000, 0)
    plain, weighted = (
        fit_seeded(classifier(splitter=splitter, random_state=0, class_weight=own), X, y)
        for own in (None, {1: 4.0, 0: 0.5})
    )
    for name in ("nodes_", "leaf_counts_", "leaf_votes_", "class_prior_"):
        assert getattr(plain, name).tobytes() == getattr(weighted, name).tobytes()
    assert not hasattr(plain, "class_weight_")
    np.testing.assert_allclose(weighted.class_weight_, [1 / 8, 1])
    p, q = plain.predict_proba(X), weighted.predict_proba(X)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    np.testing.assert_allclose(q[:, 1] * p[:, 0], 8 * p[:, 1] * q[:, 0], atol=1e-12)
    assert weighted.predict(X).mean() > plain.predict(X).mean() + 0.1
    assert plain.privacy_ == weighted.privacy_, "weights are free"
    again = fit_seeded(weighted.set_params(class_weight=None), X, y)
    assert not hasattr(again, "class_weight_")


def test_balanced_weights():
    X, y = skewed(5000, 0)
    model = classifier(class_weight="balanced").fit(X, y)
    assert model.class_weight_[1] == 1
    assert model.class_weight_[0] == pytest.approx(y.mean() / (1 - y.mean()), rel=0.2)
    assert model.predict(X).mean() > 0.2
    exact = classifier(class_weight="balanced", **NOISELESS).fit(X, y)
    assert exact.class_weight_[0] == pytest.approx(y.mean() / (1 - y.mean()))
    absent = classifier(class_weight="balanced", classes=[0, 1, 2]).fit(X, y)
    assert np.isfinite(absent.class_weight_).all() and (absent.class_weight_ > 0).all()


@pytest.mark.parametrize(
    ("class_weight", "part"),
    [
        ({2: 1.0}, "class_weight names 2, which is not in classes"),
        ({0: 0.0}, "above 0"),
        ({0: -1.0}, "above 0"),
        ({0: math.inf}, "above 0"),
        ({0: math.nan}, "above 0"),
        ({0: "1"}, "class_weight must be a number"),
        ({0: 1e10}, "10\\^9"),
        ([1, 2], "class_weight must be"),
        ("even", "class_weight must be"),
    ],
)
def test_wrong_class_weights(class_weight, part):
    X, y = table()
    with pytest.raises((ValueError, TypeError), match=part):
        classifier(class_weight=class_weight).fit(X, y)


def test_class_weights_need_counts():
    X, y = table()
    for weight in ("balanced", {0: 2}):
        with pytest.raises(ValueError, match='class_weight needs leaf="counts"'):
            classifier(leaf="majority", class_weight=weight).fit(X, y)


# Many classes


def test_hundreds_of_classes():
    n_classes = 150
    rng = np.random.default_rng(0)
    X = rng.random((6000, 2))
    y = (X[:, 0] * n_classes).astype(int)
    names = [f"class {i:03}" for i in range(n_classes)]
    model = classifier(classes=names, n_estimators=3, splitter="random", **NOISELESS)
    model.fit(X, np.array(names)[y])
    assert model.predict_proba(X).shape == (6000, n_classes)
    assert model.score(X, np.array(names)[y]) > 0.5
    guided = classifier(classes=names, n_estimators=3, epsilon=8.0).fit(X, np.array(names)[y])
    p = guided.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert log_loss(np.array(names)[y], p, labels=guided.classes_) < math.log(n_classes)


# In place of another forest


def test_only_declarations_are_new_to_a_pipeline_that_exists():
    X, y = make_classification(1000, 5, random_state=0)
    X = np.clip(X, -5, 5)
    changed = {"bounds": (-5, 5), "classes": [0, 1], "epsilon": 12.0}
    model = make_pipeline(LumberjackClassifier(n_estimators=10, n_jobs=1, verbose=0, **changed))
    assert model.fit(X, y).score(X, y) > 0.7


@pytest.mark.parametrize(
    "wrap",
    [
        lambda own: VotingClassifier([("own", own)]),
        lambda own: StackingClassifier([("own", own)]),
        lambda own: BaggingClassifier(own, n_estimators=2),
    ],
    ids=["voting", "stacking", "bagging"],
)
@pytest.mark.filterwarnings("ignore:random_state is given")  # by bagging
def test_meta_estimators_that_encode_labels_need_encoded_classes(wrap):
    rng = np.random.default_rng(0)
    X = rng.random((400, 2))
    y = np.where(X[:, 0] > 0.5, "yes", "no")
    settings = {"n_estimators": 3, "epsilon": 5, "delta": 1e-3, "bounds": (0, 1)}
    with pytest.raises(ValueError, match=r"encodes labels.*needs classes=\[0, 1\]"):
        wrap(LumberjackClassifier(**settings, classes=["no", "yes"])).fit(X, y)
    fitted = wrap(LumberjackClassifier(**settings, classes=[0, 1])).fit(X, y)
    assert set(fitted.predict(X)) <= {"no", "yes"} and fitted.score(X, y) > 0.8


def test_predict_log_proba():
    X = np.random.default_rng(0).random((50, 2))
    model = LumberjackClassifier(
        2, epsilon=math.inf, threshold=1, splitter="random", bounds=(0, 1), classes=[0, 1]
    ).fit(X, X[:, 0] > 0.5)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))
