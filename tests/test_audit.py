"""Short form of the privacy audit: claims hold, planted faults are noticed."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from lumberjack import accounting

RUNS = 500
SEED = 7  # the noise is repeatable here, so nothing flickers


def load():
    path = Path(__file__).parents[1] / "benchmarks" / "audit.py"
    spec = importlib.util.spec_from_file_location("audit", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


audit = load()


def first_case(cases, **wanted):
    """The first case with these attributes."""
    return next(
        case
        for case in cases
        if all(getattr(case, name) == value for name, value in wanted.items())
    )


def model_of(case):
    return audit.build_model(audit.choose_crowd(case))


@pytest.fixture(scope="module")
def rows():
    plain = [case for case in audit.CASES if not case.is_guided]
    guided = [case for case in audit.CASES if case.is_guided]  # slower
    return audit.audit(plain, RUNS, seed=SEED) + audit.audit(guided, RUNS // 2, seed=SEED)


def test_claims_hold(rows):
    assert [row for row in rows if row.is_violated] == []
    assert len(rows) == 2 * len(audit.CASES)


def test_every_mode_is_audited():
    modes = {
        (
            case.part,
            case.parameters.get("accounting", "joint"),
            case.parameters.get("leaf", "counts"),
            case.unit > 1,
        )
        for case in audit.CASES
    }
    for part in ("leaves", "whole"):
        for accounts in ("joint", "split"):
            for leaf in ("counts", "majority"):
                assert (part, accounts, leaf, False) in modes
        assert {(part, "joint", leaf, True) for leaf in ("counts", "majority")} <= modes
    assert {("structure", accounts, "counts", False) for accounts in ("joint", "split")} <= modes
    assert ("structure", "joint", "counts", True) in modes
    guided = [case for case in audit.CASES if case.is_guided]
    assert {("guide", n) for n in (2, 3)} <= {(case.part, case.n_classes) for case in guided}
    assert {"marginals", "guide", "whole"} == {case.part for case in guided}
    assert {1, 3} <= {case.unit for case in guided} and {1, 16} == {case.soft for case in guided}
    assert {"counts", "majority"} == {
        case.parameters.get("leaf", "counts") for case in guided if case.part == "whole"
    }


def test_the_estimator_does_what_the_model_says(rows):
    """Without Gaussian leaves the probabilities of the events are exact: a two-sided check."""
    exact = [
        row
        for row in rows
        if row.event is not None
        and (row.case.part == "structure" or row.case.parameters.get("leaf") == "majority")
    ]
    assert len(exact) > 20
    for row in exact:
        for hits, probability in zip(row.hits, row.event, strict=True):
            test = stats.binomtest(hits, row.runs, min(probability, 1.0))
            assert test.pvalue > 1e-5, row


@pytest.mark.parametrize("fault", [*audit.FAULTS, audit.PERSON_IGNORED])
def test_faults_are_noticed(fault):
    case = first_case(audit.FAULTY_CASES, fault=fault, is_guided=False)
    (row,) = audit.audit([case], 4 * RUNS, seed=SEED)
    assert row.verdict == "caught", row


@pytest.mark.parametrize(
    "case",
    [case for case in audit.FAULTY_CASES if case.is_guided],
    ids=lambda case: f"{case.part}-{case.fault}",
)
def test_faults_of_the_guide_are_noticed(case):
    runs = RUNS if case.rounds > 1 else 4 * RUNS
    (row,) = audit.audit([case], runs, seed=SEED)
    assert row.verdict == "caught", row


def test_the_guide_without_the_fault_passes_the_same_case():
    for case in audit.FAULTY_CASES:
        if case.is_guided and case.part == "guide" and case.n_features == 8:
            rows = audit.audit([replace(case, fault="")], RUNS // 2, seed=SEED)
            assert [row.verdict for row in rows] == ["holds", "holds"]


def test_the_conversation_is_worth_what_the_guide_claims():
    """Of a record in all answers with all its weight the log ratio has mean and variance mu^2."""
    case = first_case(audit.CASES, part="guide", n_features=2)
    model = model_of(case)
    mu = audit.guide_mu(case, model.noisy)
    for which, sign in ((audit.WITH, 1), (audit.WITHOUT, -1)):
        bits = audit.GeneratorBits((SEED, which))
        scores = audit.guided_scores(case, model, which, RUNS, bits)
        mean = sign * mu**2 / 2
        assert abs(scores.mean() - mean) < 5 * mu / math.sqrt(RUNS) + 0.15 * mu**2
        assert 0.75 * mu < scores.std() < 1.15 * mu


def test_both_tables_of_a_conversation_are_asked_alike():
    case = replace(first_case(audit.CASES, part="guide"), crowd=7)
    model = model_of(case)
    scores = [
        audit.guided_scores(case, model, which, 3, audit.GeneratorBits(5))
        for which in (audit.WITHOUT, audit.WITH, audit.WITHOUT)
    ]
    assert (scores[0] == scores[2]).all() and (scores[0] != scores[1]).any()


def test_the_estimator_without_the_fault_passes_the_same_case():
    case = first_case(audit.FAULTY_CASES, fault="two_ignored")
    rows = audit.audit([replace(case, fault="")], 4 * RUNS, seed=SEED)
    assert [row.verdict for row in rows] == ["holds", "holds"]


@pytest.mark.parametrize("case", audit.CASES, ids=lambda case: f"{case.name}-{case.mode}")
def test_no_exact_delta_is_above_its_claim(case):
    epsilon, delta = audit.claim(case)
    model = model_of(case)
    for direction in ("add", "remove"):
        assert model.exact_delta(direction, epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("case", audit.FAULTY_CASES, ids=lambda case: f"{case.fault}-{case.mode}")
def test_every_fault_breaks_its_claim(case):
    epsilon, delta = audit.claim(case)
    model = model_of(case)
    assert max(model.exact_delta(d, epsilon) for d in ("add", "remove")) > 1.5 * delta


def test_exact_delta_of_known_mechanisms():
    leaf = first_case(audit.CASES, part="leaves", unit=1)
    mu = audit.calibrate(leaf).mu_leaves
    for epsilon in (0.1, 1.0, 3.0):
        expected = pytest.approx(accounting.gaussian_delta(epsilon, mu), rel=1e-6)
        assert model_of(leaf).exact_delta("add", epsilon) == expected
        assert model_of(leaf).exact_delta("remove", epsilon) == expected
    lone = first_case(audit.CASES, part="structure", name="lone record")
    noisy = audit.calibrate(lone)
    tail = accounting.tail_delta(1, noisy.sigma_tests, noisy.slack)
    assert model_of(lone).exact_delta("add", 1.0) == pytest.approx(tail, rel=1e-9)


def test_outcomes_are_a_distribution():
    model = model_of(first_case(audit.CASES, part="whole", name="lone record, far"))
    for tree in model.trees:
        for which in (audit.WITHOUT, audit.WITH):
            total = math.fsum(outcome.probabilities[which] for outcome in tree.values())
            assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "hits, runs, confidence, expected",
    [  # Clopper and Pearson by scipy's own binomial test
        (n, runs, confidence, stats.binomtest(n, runs).proportion_ci(confidence, "exact"))
        for n, runs, confidence in [(0, 10, 0.95), (3, 10, 0.99), (10, 10, 0.9), (40, 900, 0.9999)]
    ],
)
def test_interval(hits, runs, confidence, expected):
    assert audit.interval(hits, runs, confidence) == pytest.approx(tuple(expected), abs=1e-9)


def test_lower_delta_is_a_lower_bound():
    assert audit.lower_delta((0, 0), 100, 1.0, 0.99) == 0
    assert audit.lower_delta((100, 100), 100, 1.0, 0.99) == 0
    sure = audit.lower_delta((1000, 0), 1000, 1.0, 0.999)
    assert 0.97 < sure < 1


def test_exit_status(monkeypatch, capsys):
    case = first_case(audit.FAULTY_CASES, fault="without_slack")
    arguments = ["--runs", "300", "--n-jobs", "1", "--seed", "1"]
    monkeypatch.setattr(audit, "CASES", [replace(case, fault="")])
    monkeypatch.setattr(audit, "FAULTY_CASES", [case])
    assert audit.main(arguments) == 0
    assert capsys.readouterr().out.count("caught") == 1

    monkeypatch.setitem(audit.FAULTS, "none", lambda noisy: noisy)
    monkeypatch.setattr(audit, "FAULTY_CASES", [replace(case, fault="none")])
    assert audit.main(arguments) == 1
    assert "MISSED" in capsys.readouterr().out


def test_a_faulty_library_fails_the_audit(monkeypatch, capsys):
    case = replace(first_case(audit.FAULTY_CASES, fault="without_slack"), fault="")
    used = audit.calibration_used
    audit.build_model.cache_clear()
    monkeypatch.setattr(
        audit, "calibration_used", lambda case: audit.FAULTS["without_slack"](used(case))
    )
    monkeypatch.setattr(audit, "CASES", [case])
    monkeypatch.setattr(audit, "FAULTY_CASES", [])
    assert audit.main(["--runs", "300", "--n-jobs", "1", "--seed", "1"]) == 1
    assert "VIOLATED" in capsys.readouterr().out
    audit.build_model.cache_clear()
