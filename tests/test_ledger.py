"""The ledger: its accounts, its refusals, threads, processes, files, and private scores."""

import copy
import gc
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from lumberjack import (
    LumberjackClassifier,
    LumberjackRegressor,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyLedger,
    accounting,
    make_private_scorer,
)
from lumberjack import ledger as ledger_module
from lumberjack.domain import Domain

RNG = np.random.default_rng(0)
X = RNG.random((300, 2))
Y = (X[:, 0] > 0.5).astype(int)
FOLDS = PredefinedSplit(RNG.integers(2, size=len(Y)))
TINY = {"epsilon": 0.2, "delta": 1e-8}


def model(**changes):
    chosen = {"n_estimators": 5, "max_depth": 7, "bounds": (0, 1), "classes": [0, 1], **TINY}
    return LumberjackClassifier(**{"splitter": "random", **chosen, **changes})


@pytest.fixture(autouse=True)
def no_ledger_stays_active():
    yield
    assert ledger_module._active == []


# Accounts

EPSILONS = st.floats(0.01, 8)
DELTAS = st.floats(1e-9, 0.1)


@settings(max_examples=150, deadline=None)
@given(EPSILONS, DELTAS, st.floats(0.05, 0.9), st.sampled_from([0.0, 0.2, 0.7]))
def test_both_directions_of_full_accounts_are_within_delta(epsilon, delta, tail, exponential):
    limits = accounting.account_limits(
        epsilon, delta, tail_share=tail, exponential_share=exponential
    )
    assert accounting.accounts_delta(epsilon, limits) <= delta
    assert min(limits) >= 0 and limits.gaussian > 0 and limits.tail > 0
    assert (limits.exponential > 0) == (exponential > 0)
    # Written out once more, with the textbook's allowance for finite precision.
    core, mu = epsilon - limits.precision_epsilon, math.sqrt(limits.gaussian)
    if exponential > 0:
        rho = mu**2 / 2 + limits.exponential
        add = accounting.zcdp_delta(core, rho)
        remove = accounting.zcdp_delta(core - limits.tail, rho)
    else:
        add = accounting.gaussian_delta(core, mu)
        remove = accounting.gaussian_delta(core - limits.tail, mu)
    inexact = (1 + math.exp(epsilon)) * limits.precision_variation
    assert max(add - math.expm1(-limits.tail), remove) + inexact <= delta * (1 + 1e-9)
    # Little is wasted.
    assert max(add - math.expm1(-limits.tail), remove) >= 0.98 * delta


@settings(max_examples=60, deadline=None)
@given(
    EPSILONS,
    DELTAS,
    st.sampled_from(["counts", "majority"]),
    st.sampled_from(["joint", "split"]),
    st.sampled_from([1, 4]),
)
def test_what_a_forest_spends_gives_its_delta(epsilon, delta, leaf, accounting_, unit):
    noise = accounting.calibrate(
        epsilon, delta, n_estimators=10, max_depth=31, n_features=5, n_classes=2, leaf=leaf,
        accounting=accounting_, records_per_unit=unit,
        budget_shares={"structure": 0.7, "leaves": 0.3},
    )  # fmt: skip
    spent = accounting.spending(noise)
    mu2 = noise.mu_structure**2 + noise.mu_leaves**2 + noise.mu_guide**2
    assert mu2 <= spent.gaussian < mu2 * (1 + 1e-13)
    assert noise.rho_leaves <= spent.exponential <= noise.rho_leaves * (1 + 1e-13)
    n_tests = unit * noise.tests_per_record
    tail = -n_tests * norm.logcdf(noise.slack / noise.sigma_tests)
    assert tail * (1 - 1e-12) <= spent.tail < tail * (1 + 1e-6)
    variation = (1 + math.exp(epsilon)) * spent.precision_variation
    assert noise.precision_delta <= variation * (1 + 1e-14)
    assert variation < noise.precision_delta * (1 + 1e-12)
    if accounting_ == "joint":
        core = epsilon - spent.precision_epsilon
        found = accounting.account_delta(
            core, mu=math.sqrt(spent.gaussian), rho=spent.exponential, loss=spent.tail
        )
        assert found <= delta * (1 + 1e-9)


def test_a_guide_is_spent():
    noise = accounting.calibrate(
        1, 1e-6, n_estimators=10, max_depth=31, n_features=5, n_classes=2,
        budget_shares={"guide": 0.25, "structure": 0.35, "leaves": 0.4},
    )  # fmt: skip
    spent = accounting.spending(noise)
    assert spent.gaussian == pytest.approx(
        noise.mu_structure**2 + noise.mu_leaves**2 + noise.mu_guide**2
    )


def best_analyst(epsilon, step, q, allowed, adding):
    """Largest delta of an analyst who chooses each query knowing the privacy loss so far.

    After i Gaussian queries of mu = `step` and j lone tests that pass with probability q, both
    counted, another one is possible as long as `allowed` holds (i, j). Dynamic program on a grid
    of losses.
    """
    width = step / 8
    loss = np.arange(-3 * epsilon - 1, 3 * epsilon + 3, width)
    end = np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)
    offsets = np.arange(-64, 65) * width
    edges = np.append(offsets - width / 2, offsets[-1] + width / 2)
    weights = np.diff(norm.cdf((edges - step**2 / 2) / step))
    shift, passed = (math.log1p(-q), q) if adding else (-math.log1p(-q), 0.0)
    value = {}
    for i, j in sorted(allowed, reverse=True):
        best = end
        if (i, j + 1) in allowed:
            after = np.interp(loss + shift, loss, value[i, j + 1])
            best = np.maximum(best, passed + (1 - passed) * after)
        if (i + 1, j) in allowed:
            padded = np.pad(value[i + 1, j], 64, mode="edge")
            best = np.maximum(best, np.convolve(padded, weights[::-1], "valid"))
        value[i, j] = best
    return float(np.interp(0, loss, value[0, 0]))


@pytest.mark.parametrize("adding", [True, False])
def test_fixed_accounts_hold_against_adaptive_analysts_and_one_sum_does_not(adding):
    epsilon, delta, n = 1.0, 1e-3, 20
    loss = -math.log1p(-0.5 * delta)
    step = accounting.gaussian_mu(epsilon, 0.5 * delta) / math.sqrt(n)
    q = -math.expm1(-loss / n)

    def account(i, j):
        return accounting.account_delta(epsilon, mu=step * math.sqrt(i), loss=-j * math.log1p(-q))

    assert account(n, n) == pytest.approx(delta)
    fixed = {(i, j) for i in range(n + 1) for j in range(n + 1)}
    one_sum = {(i, j) for i in range(3 * n) for j in range(3 * n) if account(i, j) <= delta}
    assert best_analyst(epsilon, step, q, fixed, adding) <= 1.01 * delta
    if adding:
        assert best_analyst(epsilon, step, q, one_sum, adding) > 1.8 * delta


@pytest.mark.parametrize(
    ("arguments", "options", "part"),
    [
        ((0, 1e-6), {}, "epsilon"),
        ((math.inf, 1e-6), {}, "epsilon"),
        ((math.nan, 1e-6), {}, "epsilon"),
        ((1, 0), {}, "delta"),
        ((1, 1), {}, "delta"),
        ((1, 1e-6), {"tail_share": 0}, "tail_share"),
        ((1, 1e-6), {"tail_share": 1}, "tail_share"),
        ((1, 1e-6), {"exponential_share": 1}, "exponential_share"),
        ((1, 1e-6), {"exponential_share": -0.1}, "exponential_share"),
        ((1, 1e-6), {"records_per_unit": 0}, "records_per_unit"),
    ],
)
def test_a_ledger_that_cannot_be_is_refused(arguments, options, part):
    with pytest.raises(ValueError, match=part):
        PrivacyLedger(*arguments, **options)


def test_wrong_types_are_refused():
    for wrong in (True, 1.5, "1"):
        with pytest.raises(TypeError, match="records_per_unit"):
            PrivacyLedger(1, 1e-6, records_per_unit=wrong)
    with pytest.raises(TypeError, match="ledger must be"):
        model(ledger="mine").fit(X, Y)


# Charging


def test_a_fit_is_charged_what_its_noise_says():
    ledger = PrivacyLedger(2, 1e-6)
    assert ledger.spent == accounting.Spending() and ledger.remaining == ledger.limits
    fitted = model(ledger=ledger).fit(X, Y)
    (event,) = ledger.events
    assert (event.kind, event.source) == ("fit", "LumberjackClassifier")
    assert (event.epsilon, event.delta) == (0.2, 1e-8)
    assert event.charged == accounting.spending(fitted.privacy_.calibration)
    assert event.is_private and ledger.is_private
    assert ledger.spent == event.charged
    for left, limit, used in zip(ledger.remaining, ledger.limits, event.charged, strict=True):
        assert left <= limit - used + 1e-15 * limit and left == pytest.approx(limit - used)


def test_a_guided_fit_is_charged_for_its_guide():
    ledger = PrivacyLedger(2, 1e-6)
    fitted = model(splitter="guided", ledger=ledger).fit(X, Y)
    mu2 = math.fsum(own.mu**2 for own in fitted.privacy_.mechanisms)
    assert fitted.privacy_.mechanisms[0].part == "guide"
    assert mu2 <= ledger.spent.gaussian * (1 + 1e-14) and ledger.spent.gaussian < 1.0001 * mu2


def test_a_regressor_is_charged_and_its_score_is_seen():
    settings_ = {"n_estimators": 5, "max_depth": 7, "bounds": (0, 1), **TINY}
    forest = LumberjackRegressor(target_bounds=(0, 1), **settings_)
    with PrivacyLedger(2, 1e-6) as ledger, pytest.warns(PrivacyLeakWarning, match="exact score"):
        forest.fit(X, X[:, 0]).score(X, X[:, 0])
    assert [event.kind for event in ledger.events] == ["fit", "exact score"]
    assert ledger.events[0].source == "LumberjackRegressor"


def test_the_context_charges_and_ends():
    ledger = PrivacyLedger(2, 1e-6)
    with ledger as entered:
        assert entered is ledger
        model().fit(X, Y)
    model().fit(X, Y)
    assert len(ledger.events) == 1
    with pytest.raises(ZeroDivisionError), ledger:
        1 / 0  # noqa: B018
    model().fit(X, Y)
    assert len(ledger.events) == 1


def test_every_ledger_is_charged_once():
    outer, inner, given = (PrivacyLedger(2, 1e-6) for _ in range(3))
    with outer, inner, outer:
        model(ledger=(given, inner)).fit(X, Y)
    assert [len(own.events) for own in (outer, inner, given)] == [1, 1, 1]


def test_what_one_refuses_is_charged_to_none():
    wide, narrow = PrivacyLedger(2, 1e-6), PrivacyLedger(0.1, 1e-6)
    with wide, narrow, pytest.raises(PrivacyBudgetError, match="Gaussian mechanisms"):
        model(delta=1e-7).fit(X, Y)
    assert wide.events == narrow.events == ()


@pytest.mark.parametrize("n_fits", [1, 3, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("exponential_share", [0.0, 0.2])
def test_share_is_what_so_many_fits_can_have(n_fits, epsilon, exponential_share):
    ledger = PrivacyLedger(epsilon, 1e-6, exponential_share=exponential_share)
    own_epsilon, own_delta = ledger.share(n_fits)
    assert 0 < own_epsilon < epsilon and 0 < own_delta < 1e-6
    with ledger:
        for _ in range(n_fits):
            model(epsilon=own_epsilon, delta=own_delta).fit(X, Y)
        with pytest.raises(PrivacyBudgetError):
            model(epsilon=own_epsilon, delta=own_delta).fit(X, Y)
    assert len(ledger.events) == n_fits
    assert ledger.remaining.gaussian < 0.15 * ledger.limits.gaussian
    assert min(ledger.remaining) >= 0


def test_nothing_is_left_to_share():
    ledger = PrivacyLedger(1, 1e-6)
    rest = ledger_module.LedgerEvent("fit", "test", None, None, ledger.limits)
    ledger.charge(rest)  # to the last bit
    assert ledger.remaining == accounting.Spending()
    with pytest.raises(PrivacyBudgetError, match="nothing is left"):
        ledger.share()
    for name in accounting.Spending._fields:
        one = accounting.Spending(**{name: 5e-324})
        event = ledger_module.LedgerEvent("fit", "test", None, None, one)
        with pytest.raises(PrivacyBudgetError):
            ledger.charge(event)


def test_sums_are_exact():
    ledger = PrivacyLedger(1, 1e-6)
    tenth = accounting.Spending(gaussian=ledger.limits.gaussian / 10)
    event = ledger_module.LedgerEvent("fit", "test", None, None, tenth)
    fitting = 10 if ledger_module.Fraction(tenth.gaussian) * 10 <= ledger.limits.gaussian else 9
    for _ in range(fitting):
        ledger.charge(event)
    with pytest.raises(PrivacyBudgetError):
        ledger.charge(event)
    assert ledger.remaining.gaussian >= 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_cannot_be_counted_is_refused(value):
    ledger = PrivacyLedger(1, 1e-6)
    charged = accounting.Spending(tail=value)
    with pytest.raises(PrivacyBudgetError):
        ledger.charge(ledger_module.LedgerEvent("fit", "test", None, None, charged))
    assert ledger.events == ()


@pytest.mark.parametrize(
    ("changes", "options", "parts"),
    [
        ({"epsilon": 3.0}, {}, ("Gaussian mechanisms", "smaller epsilon", "ledger.share")),
        ({"delta": 1e-5}, {}, ("tail of the tests", "smaller delta", "tail_share")),
        ({"leaf": "majority"}, {}, ("exponential mechanisms", 'leaf="counts"', "is left of 0")),
        ({"leaf": "majority", "epsilon": 1.9}, {"exponential_share": 0.05}, ("exponential",)),
        ({"epsilon": math.inf, "threshold": 3}, {}, ("infinite epsilon", "no noise")),
        ({}, {"records_per_unit": 2}, ("records_per_unit=2",)),
    ],
)
def test_a_refusal_names_the_account_and_the_remedy(changes, options, parts):
    ledger = PrivacyLedger(2, 1e-6, **options)
    with ledger, pytest.raises(PrivacyBudgetError, match="the ledger refuses this fit") as caught:
        model(**changes).fit(X, Y)
    assert isinstance(caught.value, ValueError)
    for part in parts:
        assert part in str(caught.value)
    assert ledger.events == () and ledger.remaining == ledger.limits
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_finite_precision_has_an_account():
    ledger = PrivacyLedger(1e-3, 1e-2)
    with pytest.raises(PrivacyBudgetError, match=r"finite precision \(epsilon\)"):
        model(n_estimators=30, max_depth=127, epsilon=5e-4, ledger=ledger).fit(X, Y)


def test_majority_and_split_fits_draw_from_the_same_accounts():
    ledger = PrivacyLedger(2, 1e-6, exponential_share=0.3)
    for leaf in ("counts", "majority"):
        for accounting_ in ("joint", "split"):
            model(leaf=leaf, accounting=accounting_, ledger=ledger).fit(X, Y)
    assert [event.charged.exponential > 0 for event in ledger.events] == [False] * 2 + [True] * 2
    assert all(event.charged.gaussian > 0 for event in ledger.events)


def test_larger_units_than_the_ledgers_are_welcome():
    ledger = PrivacyLedger(2, 1e-6, records_per_unit=2)
    for unit in (2, 3):
        model(records_per_unit=unit, ledger=ledger).fit(X, Y)
    assert len(ledger.events) == 2


def test_one_account_is_never_turned_into_another():
    ledger = PrivacyLedger(2, 1e-6)
    with ledger:
        with pytest.raises(PrivacyBudgetError, match="tail"):
            for _ in range(100):
                model(epsilon=0.05, delta=2e-7).fit(X, Y)
        assert ledger.remaining.gaussian > 0.9 * ledger.limits.gaussian
        with pytest.raises(PrivacyBudgetError, match="tail"):
            model(epsilon=0.01, delta=2e-7).fit(X, Y)
        make_private_scorer(noise=50)(model(ledger=None).fit(X, Y), X, Y)  # needs no tail


def test_the_charge_comes_before_the_data(monkeypatch):
    read = []
    monkeypatch.setattr(Domain, "encode", lambda *args, **options: read.append(1) or 1 / 0)
    ledger = PrivacyLedger(0.1, 1e-6)
    with ledger, pytest.raises(PrivacyBudgetError):
        model(epsilon=1.0).fit(X, Y)
    assert read == [] and ledger.events == ()
    with ledger, pytest.raises(ZeroDivisionError):
        model(epsilon=0.05).fit(X, Y)
    assert read == [1] and len(ledger.events) == 1  # a fit that fails has been charged


def test_an_undeclared_label_is_charged_like_any_other():
    # So that what is left in the ledger says nothing about the records.
    ledgers = [PrivacyLedger(1, 1e-6), PrivacyLedger(1, 1e-6)]
    model(ledger=ledgers[0]).fit(X, Y)
    with pytest.raises(ValueError, match="label"):
        model(ledger=ledgers[1]).fit(X, np.where(Y == 1, 7, 0))
    assert ledgers[0].remaining == ledgers[1].remaining


def test_seeds_and_inferred_domains_are_marked():
    ledger = PrivacyLedger(2, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model(random_state=0, ledger=ledger).fit(X, Y)
        model(bounds="infer", ledger=ledger).fit(X, Y)
    seeded, inferred = ledger.events
    assert seeded.seeded and not seeded.inferred and not seeded.is_private
    assert inferred.inferred == ("bounds of x0", "bounds of x1") and not inferred.seeded
    assert not ledger.is_private
    assert "OUTSIDE THE GUARANTEE: 1 fits with random_state, 1 fits that read" in str(ledger)


def test_text():
    ledger = PrivacyLedger(2, 1e-6)
    model(ledger=ledger).fit(X, Y)
    assert repr(ledger) == "PrivacyLedger(epsilon=2, delta=1e-06)"
    lines = str(ledger).splitlines()
    assert lines[0] == "ledger of (2, 1e-06)-differential privacy, add or remove one unit"
    assert lines[1] == "unit: one record"
    assert lines[2].startswith("Gaussian mechanisms (mu^2): 0.00") and "spent" in lines[2]
    assert lines[3].startswith("tail of the tests (log loss): ")
    assert "exponential" not in str(ledger)
    assert "exponential" in str(PrivacyLedger(2, 1e-6, exponential_share=0.5))
    assert lines[-1] == "charged: 1 fits, 0 private scores"
    assert max(map(len, lines)) <= 100


def test_the_ledger_does_not_change_the_fit():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        alone = model(random_state=3).fit(X, Y)
        charged = model(random_state=3, ledger=PrivacyLedger(2, 1e-6)).fit(X, Y)
    assert alone.nodes_.tobytes() == charged.nodes_.tobytes()
    assert (alone.leaf_counts_ == charged.leaf_counts_).all()


# Copies


def test_copies_are_the_same_ledger():
    ledger = PrivacyLedger(2, 1e-6)
    assert copy.copy(ledger) is ledger and copy.deepcopy(ledger) is ledger
    assert clone(model(ledger=ledger)).ledger is ledger
    assert copy.deepcopy(model(ledger=ledger)).ledger is ledger
    assert copy.deepcopy([ledger, {"a": ledger}])[1]["a"] is ledger
    both = (ledger, PrivacyLedger(1, 1e-6))
    assert clone(model(ledger=both)).ledger == both
    fitted = model(ledger=ledger).fit(X, Y)
    assert copy.deepcopy(fitted).ledger is ledger and copy.copy(fitted).ledger is ledger
    assert clone(fitted).ledger is ledger


def test_without_a_path_it_refuses_to_be_pickled():
    ledger = PrivacyLedger(2, 1e-6)
    with pytest.raises(TypeError, match="path=FILE"):
        pickle.dumps(ledger)
    with pytest.raises(TypeError, match="path=FILE"):
        pickle.dumps(model(ledger=ledger))
    with ledger, pytest.raises(TypeError, match="path=FILE"):
        pickle.dumps(make_pipeline(FunctionTransformer(), model()))
    pickle.dumps(model())


def test_a_fitted_model_can_be_published_and_does_not_take_the_ledger_along():
    ledger = PrivacyLedger(2, 1e-6)
    own = pickle.dumps(model(ledger=ledger).fit(X, Y))
    with ledger:
        within = pickle.dumps(model().fit(X, Y))
    assert pickle.loads(own).ledger is ledger is pickle.loads(within).ledger
    expected = pickle.loads(own).predict_proba(X)
    del ledger
    gc.collect()
    for data in (own, within):
        elsewhere = pickle.loads(data)
        elsewhere.score(X, Y)
        with pytest.raises(PrivacyBudgetError, match=r"set_params\(ledger=None\)"):
            elsewhere.fit(X, Y)
        elsewhere.set_params(ledger=None).fit(X, Y)
    assert (pickle.loads(own).predict_proba(X) == expected).all()


# Threads and processes


def test_threads_never_overdraw():
    ledger = PrivacyLedger(2, 1e-6)
    epsilon, delta = ledger.share(10)
    refused = []

    def work():
        for _ in range(5):
            try:
                model(epsilon=epsilon, delta=delta).fit(X[:20], Y[:20])
            except PrivacyBudgetError:
                refused.append(1)

    with ledger:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 10 <= len(ledger.events) <= 11 and len(refused) + len(ledger.events) == 40
    assert min(ledger.remaining) >= 0


def test_contexts_that_overlap_in_threads():
    first, second = PrivacyLedger(2, 1e-6), PrivacyLedger(2, 1e-6)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    model().fit(X, Y)
    second.__exit__(None, None, None)
    assert (len(first.events), len(second.events)) == (0, 1)


def test_joblib_threads_are_charged():
    scorer = make_private_scorer(noise=30)
    with PrivacyLedger(4, 1e-6) as ledger, joblib.parallel_backend("threading"):
        scores = cross_val_score(
            model(), X, Y, cv=FOLDS, scoring=scorer, n_jobs=2, error_score="raise"
        )
    assert len(scores) == 2 and all(0 <= score <= 1 for score in scores)
    kinds = sorted(event.kind for event in ledger.events)
    assert kinds == ["fit", "fit", "private score", "private score"]


def test_joblib_processes_are_refused_without_a_path():
    with PrivacyLedger(4, 1e-6), pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
        cross_val_score(model(), X, Y, cv=FOLDS, scoring=make_private_scorer(noise=30), n_jobs=2)


@pytest.mark.parametrize("given", [False, True])
def test_joblib_processes_are_charged_through_the_file(tmp_path, given):
    ledger = PrivacyLedger(4, 1e-6, path=tmp_path / "ledger.json")
    own = {"ledger": ledger} if given else {}
    search = GridSearchCV(
        model(**own), {"max_depth": [3, 7]}, cv=FOLDS, n_jobs=2, error_score="raise",
        scoring=make_private_scorer("roc_auc", noise=30, **own),
    )  # fmt: skip
    if given:
        search.fit(X, Y)
    else:
        with ledger:
            search.fit(X, Y)
    kinds = sorted(event.kind for event in ledger.events)
    assert kinds == ["fit"] * 5 + ["private score"] * 4
    assert ledger.is_private
    assert pickle.loads(pickle.dumps(ledger)).events == ledger.events


def in_fork(function, seconds=60):
    """Run a function in a fork of this process; return what it returns."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work():
        try:
            sender.send(function())
        except BaseException as error:
            sender.send(repr(error))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=work)
        process.start()
    try:
        assert receiver.poll(seconds), "the fork does not answer"
        return receiver.recv()
    finally:
        process.kill()
        process.join()


def outcome_of_fit(**changes):
    try:
        model(**changes).fit(X, Y)
    except PrivacyBudgetError as error:
        return str(error)
    return "charged"


def test_a_fork_cannot_spend_what_its_parent_has():
    with PrivacyLedger(2, 1e-6) as ledger:
        assert "lives in another process" in in_fork(outcome_of_fit)
    assert ledger.events == ()


def test_a_fork_spends_through_the_file(tmp_path):
    with PrivacyLedger(2, 1e-6, path=tmp_path / "ledger.json") as ledger:
        assert in_fork(outcome_of_fit) == "charged"
    assert len(ledger.events) == 1


# The file


def test_a_file_is_continued(tmp_path):
    path = tmp_path / "ledger.json"
    first = PrivacyLedger(2, 1e-6, path=path)
    model(ledger=first).fit(X, Y)
    for again in (PrivacyLedger(2, 1e-6, path=str(path)), PrivacyLedger.open(path)):
        assert again.events == first.events and again.limits == first.limits
        assert again.remaining == first.remaining and again.path == str(path)
    model(ledger=(first, again)).fit(X, Y)  # one ledger, charged once
    assert len(first.events) == len(again.events) == 2
    with pytest.raises(ValueError, match="other parameters"):
        PrivacyLedger(3, 1e-6, path=path)
    assert sorted(os.listdir(tmp_path)) == ["ledger.json", "ledger.json.lock"]
    unpickled = pickle.loads(pickle.dumps(first))
    assert unpickled.id == first.id and copy.deepcopy(first) is first


def test_the_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger(2, 1e-6, path="ledger.json")
    monkeypatch.chdir("/")
    model(ledger=ledger).fit(X, Y)
    assert len(PrivacyLedger.open(tmp_path / "ledger.json").events) == 1


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (5, TypeError, "path must be the name of a file, got int"),
        (True, TypeError, "path must be the name of a file, got bool"),
        (b"ledger.json", TypeError, "path must be the name of a file, got bytes"),
        ("", ValueError, "path must be the name of a file, got an empty one"),
        (".", ValueError, "path must be the name of a file, but .* is a folder"),
        ("folder", ValueError, "path must be the name of a file, but .*folder is a folder"),
        ("nowhere/ledger.json", ValueError, "path lies in the folder .*nowhere, which is not"),
    ],
)
def test_a_path_that_names_no_file_is_refused(path, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=message):
        PrivacyLedger(2, 1e-6, path=path)
    if error is TypeError or os.path.isdir(path or "x"):
        with pytest.raises(error, match=message):
            PrivacyLedger.open(path)
    assert sorted(os.listdir(tmp_path)) == ["folder"]


def test_a_file_that_is_gone_or_replaced_is_an_error(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = PrivacyLedger(2, 1e-6, path=path)
    path.unlink()
    with pytest.raises(PrivacyBudgetError, match="is not there"):
        model(ledger=ledger).fit(X, Y)
    assert not path.exists()
    PrivacyLedger(2, 1e-6, path=path)
    with pytest.raises(PrivacyBudgetError, match="replaced by another"):
        model(ledger=ledger).fit(X, Y)
    with pytest.raises(PrivacyBudgetError, match="is not there"):
        PrivacyLedger.open(tmp_path / "other.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"gaussian": 0.', '"gaussian": 1.'),
        lambda text: text.replace('"gaussian": 0.', '"gaussian": -0.'),
        lambda text: text.replace('"tail": ', '"tail": "much", "more": '),
        lambda text: text.replace('"charged": {', '"charged": {"love": 1, '),
        lambda text: text.replace('"epsilon": 2.0', '"epsilon": 1.0'),
        lambda text: text.replace('"precision_epsilon": 0.0025', '"precision_epsilon": NaN'),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "ledger.json"
    ledger = PrivacyLedger(2, 1e-6, path=path)
    model(ledger=ledger).fit(X, Y)
    before = path.read_text()
    damaged = damage(before)
    assert damaged != before
    path.write_text(damaged)
    with pytest.raises(PrivacyBudgetError, match="damaged"):
        model(ledger=ledger).fit(X, Y)
    assert path.read_text() == damaged


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    ledger = PrivacyLedger(2, 1e-6, path=tmp_path / "ledger.json")
    model(ledger=ledger).fit(X, Y)

    def crash(*args):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(MemoryError):
            model(ledger=ledger).fit(X, Y)
    assert len(ledger.events) == 1
    model(ledger=ledger).fit(X, Y)
    assert len(ledger.events) == 2


HOLDER = """
import sys, time
from lumberjack.ledger import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of a ledger."""
    path = tmp_path / "ledger.json"
    ledger = PrivacyLedger(2, 1e-6, path=path)
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield ledger, process
        process.kill()


def test_a_lock_that_is_held_is_waited_for_and_named(holder, monkeypatch):
    ledger, _ = holder
    monkeypatch.setattr(ledger_module, "LOCK_SECONDS", 0.05)
    with pytest.raises(TimeoutError, match=r"ledger\.json\.lock has been locked"):
        model(ledger=ledger).fit(X, Y)
    assert ledger.events == ()  # reading needs no lock


def test_the_lock_of_a_process_that_was_killed_is_free(holder):
    ledger, process = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    start = time.monotonic()
    model(ledger=ledger).fit(X, Y)
    assert len(ledger.events) == 1 and time.monotonic() - start < 30


def test_the_file_is_readable_json(tmp_path):
    ledger = PrivacyLedger(2, 1e-6, path=tmp_path / "ledger.json")
    model(ledger=ledger).fit(X, Y)
    content = json.loads((tmp_path / "ledger.json").read_text())
    assert content["terms"]["epsilon"] == 2 and len(content["events"]) == 1
    assert set(content) == {"format", "lumberjack", "id", "terms", "limits", "events"}


# Scores


def test_an_exact_score_inside_a_ledger_is_recorded_and_warned_of():
    fitted = model().fit(X, Y)
    fitted.score(X, Y)  # outside: no warning
    ledger = PrivacyLedger(2, 1e-6)
    with ledger, pytest.warns(PrivacyLeakWarning, match="outside the guarantee") as caught:
        fitted.score(X, Y)
    assert caught[0].filename == __file__
    with pytest.warns(PrivacyLeakWarning, match="make_private_scorer"):
        model(ledger=ledger).fit(X, Y).score(X, Y, sample_weight=np.ones(len(Y)))
    assert [event.kind for event in ledger.events] == ["exact score", "fit", "exact score"]
    assert not ledger.events[0].is_private and not ledger.is_private
    assert ledger.events[0].charged == accounting.Spending()
    assert "OUTSIDE THE GUARANTEE: 2 exact scores" in str(ledger)


def test_the_default_score_of_a_search_is_caught():
    estimator = make_pipeline(FunctionTransformer(), model())
    grid = {"lumberjackclassifier__max_depth": [3, 7]}
    with PrivacyLedger(4, 1e-6) as ledger, pytest.warns(PrivacyLeakWarning):
        GridSearchCV(estimator, grid, cv=FOLDS).fit(X, Y)
    assert sum(event.kind == "exact score" for event in ledger.events) == 4
    assert not ledger.is_private


def test_a_private_score_is_charged_what_its_noise_says():
    fitted = model().fit(X, Y)
    for unit in (1, 3):
        for options in ({"noise": 30.0}, {"mu": 0.1}):
            ledger = PrivacyLedger(8, 1e-6, records_per_unit=unit)
            make_private_scorer(ledger=ledger, **options)(fitted, X, Y)
            (event,) = ledger.events
            assert (event.kind, event.source) == ("private score", "accuracy")
            sigma = options.get("noise", unit / 0.1)
            exact = (unit / sigma) ** 2
            assert exact <= event.charged.gaussian < exact * (1 + 1e-13)
            assert event.charged.tail == event.charged.exponential == 0
            assert 0 < event.charged.precision_variation < 1e-14
            assert event.is_private


def sure_model():
    """A forest that has learned its table well."""
    return model(epsilon=15.0, delta=1e-3, n_estimators=5).fit(X, Y)


def test_private_scores_are_near_the_exact_ones():
    fitted = sure_model()
    ledger = PrivacyLedger(8, 1e-3)
    accuracy = make_private_scorer("accuracy", noise=1.0, ledger=ledger)
    area = make_private_scorer("roc_auc", noise=1.0, bins=100, ledger=ledger)
    assert accuracy(fitted, X, Y) == pytest.approx(fitted.score(X, Y), abs=0.05)
    exact = roc_auc_score(Y, fitted.predict_proba(X)[:, 1])
    assert area(fitted, X, Y) == pytest.approx(exact, abs=0.3)
    counts = ledger_module.count_by_probability(fitted, X, Y, 1000)
    assert ledger_module.area_of(counts) == pytest.approx(exact, abs=0.02)
    assert ledger_module.accuracy_of(
        ledger_module.count_right_and_wrong(fitted, X, Y, None)
    ) == fitted.score(X, Y)


class Clear:
    """A classifier that knows the probability, and predicts always the first class."""

    classes_ = np.array(["no", "yes"])

    def predict(self, X):
        return np.full(len(X), "no")

    def predict_proba(self, X):
        return np.stack([1 - X[:, 0], X[:, 0]], axis=1)


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_one_record_changes_one_cell_by_one(metric):
    count, _ = ledger_module.METRICS[metric]
    labels = np.where(Y == 1, "yes", "no")
    rows = np.concatenate([X, [[0.0, 0], [1.0, 0], [0.5, 0]]])
    labels = np.append(labels, ["yes", "no", "other"])
    whole = count(Clear(), rows, labels, 20)
    assert whole.sum() == len(rows)
    for i in (0, 1, len(rows) - 3, len(rows) - 2, len(rows) - 1):
        keep = np.arange(len(rows)) != i
        change = whole - count(Clear(), rows[keep], labels[keep], 20)
        assert change.sum() == np.abs(change).sum() == 1


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_labels_in_a_column_count_once(metric):
    count, _ = ledger_module.METRICS[metric]
    labels = np.where(Y == 1, "yes", "no")
    expected = count(Clear(), X, labels, 20)
    assert (count(Clear(), X, labels[:, None], 20) == expected).all()
    with pytest.raises(ValueError, match="same number of rows"):
        count(Clear(), X, labels[:-1], 20)


def test_the_noise_of_a_score_is_the_one_that_is_charged(monkeypatch):
    # Means and variances of 2000 released histograms, within 5 standard errors.
    released = []
    monkeypatch.setitem(
        ledger_module.METRICS,
        "accuracy",
        (lambda *args: np.array([[10**6, 10**6]]), lambda counts: released.append(counts) or 0.5),
    )
    ledger = PrivacyLedger(100, 1e-6)
    scorer = make_private_scorer(mu=0.1, ledger=ledger)
    monkeypatch.setattr(ledger, "charge", lambda event: None)
    for _ in range(2000):
        scorer(Clear(), X, Y)
    noise = np.array(released).ravel() - 10**6
    assert abs(noise.mean()) < 5 * 10 / math.sqrt(4000)
    assert abs(noise.std() - 10) < 5 * 10 / math.sqrt(8000)
    assert noise.dtype == np.int64


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_a_score_of_nothing_but_noise_stays_in_its_range(metric):
    ledger = PrivacyLedger(1, 1e-6)
    scorer = make_private_scorer(metric, noise=1e6, ledger=ledger)
    for _ in range(20):
        assert 0 <= scorer(Clear(), X[:1], ["no"]) <= 1
    assert ledger_module.accuracy_of(np.zeros((1, 2))) == 0.5
    assert ledger_module.area_of(np.zeros((2, 5))) == 0.5


def test_a_score_is_charged_before_the_records_are_read():
    class Watched(Clear):
        def predict(self, X):
            raise AssertionError("read")

    ledger = PrivacyLedger(0.1, 1e-6)
    with pytest.raises(PrivacyBudgetError, match="refuses this private score"):
        make_private_scorer(noise=1.0, ledger=ledger)(Watched(), X, Y)
    with pytest.raises(AssertionError, match="read"):
        make_private_scorer(noise=100.0, ledger=ledger)(Watched(), X, Y)
    assert len(ledger.events) == 1


def test_a_private_score_needs_a_ledger():
    with pytest.raises(PrivacyBudgetError, match="needs a ledger"):
        make_private_scorer(noise=3)(Clear(), X, Y)


def test_roc_auc_needs_two_classes():
    class Three(Clear):
        classes_ = np.arange(3)

    ledger = PrivacyLedger(1, 1e-6)
    with pytest.raises(ValueError, match="two classes"):
        make_private_scorer("roc_auc", noise=100, ledger=ledger)(Three(), X, Y)
    assert ledger.events == ()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "either noise"),
        ({"noise": 1, "mu": 1}, "either noise"),
        ({"noise": 0}, "noise must be"),
        ({"noise": math.inf}, "noise must be"),
        ({"noise": math.nan}, "noise must be"),
        ({"noise": True}, "noise must be"),
        ({"mu": -1}, "mu must be"),
        ({"mu": 1, "bins": 1}, "bins"),
        ({"mu": 1, "bins": 2.5}, "bins"),
        ({"mu": 1, "metric": "f1"}, "metric"),
    ],
)
def test_wrong_scorers_are_refused(options, part):
    with pytest.raises(ValueError, match=part):
        make_private_scorer(**options)


def test_scorers_are_copied_and_pickled_with_their_ledger(tmp_path):
    ledger = PrivacyLedger(2, 1e-6, path=tmp_path / "ledger.json")
    scorer = make_private_scorer(noise=30, ledger=ledger)
    assert copy.deepcopy(scorer).ledger is ledger
    assert pickle.loads(pickle.dumps(scorer)).ledger.id == ledger.id
    assert repr(scorer) == "make_private_scorer('accuracy', noise=30)"
    with PrivacyLedger(2, 1e-6), pytest.raises(TypeError, match="path=FILE"):
        pickle.dumps(make_private_scorer(mu=0.1))


def test_a_search_with_private_scores_from_end_to_end():
    with PrivacyLedger(8, 1e-6) as ledger:
        epsilon, delta = ledger.share(20)
        search = GridSearchCV(
            model(epsilon=epsilon, delta=delta),
            {"max_depth": [3, 7]},
            cv=FOLDS,
            scoring=make_private_scorer(noise=30),
            error_score="raise",
        ).fit(X, Y)
    assert search.best_params_["max_depth"] in (3, 7)
    assert [event.kind for event in ledger.events].count("fit") == 5
    assert ledger.is_private
