"""The report: its fields, its text, its evidence, and what it says of seeds and missing noise."""

import dataclasses
import json
import math
import pickle
import warnings

import numpy as np
import pytest

from lumberjack import (
    LumberjackClassifier,
    PrivacyLeakWarning,
    PrivacyReport,
    __version__,
    accounting,
    privacy,
)
from lumberjack.noise import SeededBits, SystemBits

LEAVES = ("counts", "majority")
ACCOUNTINGS = ("joint", "split")
SHARES = {"structure": 0.75, "leaves": 0.25}

RNG = np.random.default_rng(0)
X = RNG.random((300, 2))
Y = (X[:, 0] > 0.5).astype(int)


def model(**changes):
    settings = {"n_estimators": 6, "epsilon": 2.0, "delta": 1e-4, "max_depth": 15}
    declared = {"bounds": (0, 1), "classes": [0, 1], "splitter": "random"}
    return LumberjackClassifier(**{**settings, **declared, **changes})


def report_of(**changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return model(**changes).fit(X, Y).privacy_


def calibration(epsilon=1.0, delta=1e-6, **changes):
    settings = {"n_estimators": 30, "max_depth": 100, "n_features": 14, "n_classes": 2}
    return accounting.calibrate(epsilon, delta, **{**settings, "budget_shares": SHARES, **changes})


# Fields


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("accounting_", ACCOUNTINGS)
@pytest.mark.parametrize("g", [1, 3])
def test_fields_tell_the_calibration(leaf, accounting_, g):
    report = report_of(leaf=leaf, accounting=accounting_, records_per_unit=g)
    assert isinstance(report, PrivacyReport)
    used = report.calibration
    assert (report.epsilon, report.delta) == (2.0, 1e-4)
    assert 0.99e-4 < report.delta_reached <= 1e-4
    assert report.delta_reached == accounting.recomputed_delta(used)
    assert report.neighbouring == "add or remove one unit"
    assert report.records_per_unit == used.records_per_unit == g
    assert report.accounting == accounting_
    assert report.threshold == used.threshold >= g + report.slack
    assert report.slack == used.slack > 0
    assert not report.seeded and report.entropy == "operating system" and report.inferred == ()
    assert report.finite_precision == (used.precision_epsilon, used.precision_delta)
    assert 0 < report.finite_precision[0] < 1e-6 and 0 < report.finite_precision[1] < 1e-8
    assert report.is_private
    tests, leaves = report.mechanisms
    assert (tests.part, leaves.part) == ("structure", "leaves")
    assert (tests.share, leaves.share) == (0.75, 0.25)
    assert tests.name == "thresholded Gaussian tests" and tests.noise == used.sigma_tests
    assert tests.queries_per_unit == g * 6 * 4
    assert leaves.queries_per_unit == g * 6
    assert tests.mu == pytest.approx(g * math.sqrt(6 * 4) / tests.noise)
    assert tests.rho == pytest.approx(tests.mu**2 / 2)
    if leaf == "counts":
        assert leaves.name == "rounded Gaussian counts" and leaves.noise == used.sigma_leaves
        assert leaves.mu == pytest.approx(g * math.sqrt(6) / leaves.noise)
    else:
        assert leaves.name.startswith("exponential") and leaves.noise == used.epsilon_leaf
        assert leaves.mu == 0
        assert leaves.rho == pytest.approx(6 * (g * leaves.noise) ** 2 / 8)


def test_rho_of_every_gaussian_mechanism_is_half_its_squared_mu():
    for mechanism in report_of(leaf="counts").mechanisms:
        assert mechanism.rho == pytest.approx(mechanism.mu**2 / 2)


def test_report_holds_only_public_numbers():
    # Another table with the same declarations gets the same report.
    other = model().fit([[0.5, 0.25]] * 7, [1] * 7).privacy_
    assert other == report_of()
    assert str(other) == str(report_of()) and repr(other) == repr(report_of())


def test_report_is_frozen():
    report = report_of()
    for part in (report, report.mechanisms[0], report.calibration):
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, 0)
    assert isinstance(report.mechanisms, tuple) and isinstance(report.inferred, tuple)
    assert isinstance(hash(report), int)


def test_report_of_a_fit_does_not_follow_the_parameters():
    estimator = model().fit(X, Y)
    before = str(estimator.privacy_)
    estimator.set_params(epsilon=9.0, budget_shares={"structure": 0.5, "leaves": 0.5})
    assert str(estimator.privacy_) == before


def test_report_can_be_pickled_and_taken_apart():
    report = report_of(records_per_unit=2)
    assert pickle.loads(pickle.dumps(report)) == report
    fields = dataclasses.asdict(report)
    assert fields["epsilon"] == 2.0 and fields["mechanisms"][1]["part"] == "leaves"
    assert accounting.recomputed_delta(accounting.Calibration(**fields["calibration"])) <= 1e-4


# Text


def test_text_of_the_default_report():
    report = privacy.make_report(calibration(), (), SystemBits())
    tests, leaves = report.mechanisms
    assert str(report).splitlines() == [
        "(1, 1e-06)-differential privacy, add or remove one unit",
        "unit: one record",
        "replacing one unit: (2, 3.72e-06)-differential privacy",
        f"accounting: joint, delta reached {report.delta_reached:.3g}",
        f"threshold: a node of {report.threshold:.4g} records is split half the time",
        f"structure (75%): thresholded Gaussian tests, noise {tests.noise:.4g} records, "
        "a unit is in at most 210",
        f"leaves (25%): rounded Gaussian counts, noise {leaves.noise:.4g} records, "
        "a unit is in at most 30",
        "entropy: operating system",
    ]


def test_text_of_majority_leaves_of_persons():
    used = calibration(leaf="majority", accounting="split", records_per_unit=4)
    report = privacy.make_report(used, (), SystemBits())
    text = str(report)
    assert report.unit == "all records of one person, up to 4"
    assert f"unit: {report.unit}" in text and "accounting: split" in text
    assert f"exponential choice of a class, epsilon {used.epsilon_leaf:.4g} a leaf" in text
    assert "a unit is in at most 840" in text and "a unit is in at most 120" in text


def test_every_line_is_short_enough_to_read():
    used = calibration(leaf="majority", records_per_unit=12)
    for line in str(privacy.make_report(used, (), SeededBits(1))).splitlines():
        assert 0 < len(line) <= 100 and line == line.strip()


# Replacing one unit


def test_replacing_is_removing_and_adding():
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)):
        text = privacy.replacement_text(epsilon, delta)
        replaced = (1 + math.exp(epsilon)) * delta
        assert text.startswith(f"({2 * epsilon:g}, ") and text.endswith(")-differential privacy")
        assert replaced <= float(text.split(", ")[1].split(")")[0]) < 1.01 * replaced
        assert replaced <= privacy.replacement(epsilon, delta)[1] < replaced * (1 + 1e-14)


@pytest.mark.parametrize(("epsilon", "delta"), [(20.0, 0.5), (800.0, 1e-6)])
def test_the_delta_of_replacing_is_at_most_one(epsilon, delta):
    assert privacy.replacement_text(epsilon, delta) == (
        f"({2 * epsilon:g}, 1)-differential privacy"
    )


def test_the_printed_delta_of_replacing_is_never_too_small():
    for epsilon in (0.5, 0.7, 1.0, 2.0, 3.0):
        printed = privacy.replacement_text(epsilon, 1e-6).split(", ")[1].split(")")[0]
        assert float(printed) >= (1 + math.exp(epsilon)) * 1e-6


# What takes the guarantee away


@pytest.mark.parametrize("random_state", [0, 5, np.random.RandomState(0)], ids=str)
def test_a_seed_is_shown(random_state):
    report = report_of(random_state=random_state)
    assert report.seeded and report.entropy == "random_state" and not report.is_private
    assert "SEEDED: the guarantee does not hold against anyone who knows the seed" in str(report)
    assert "do not publish" in str(report)
    unseeded = report_of()
    assert "SEEDED" not in str(unseeded) and unseeded.is_private
    assert dataclasses.replace(report, seeded=False, entropy=unseeded.entropy) == unseeded


def test_what_was_inferred_is_shown():
    report = report_of(bounds="infer", classes="infer")
    assert report.inferred == ("bounds of x0", "bounds of x1", "classes")
    assert not report.is_private and not report.seeded
    shown = "READ FROM THE DATA, outside the guarantee: bounds of x0, bounds of x1, classes"
    assert shown in str(report).splitlines()
    assert "READ FROM THE DATA" not in str(report_of())


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("accounting_", ACCOUNTINGS)
def test_an_infinite_epsilon_promises_nothing(leaf, accounting_):
    report = report_of(epsilon=math.inf, threshold=3, leaf=leaf, accounting=accounting_)
    assert not report.is_private
    assert report.epsilon == math.inf and report.delta_reached == 0
    assert report.threshold == 3 and report.slack == 0
    text = str(report)
    assert text.startswith("NO PRIVACY (epsilon is infinite)")
    assert "replacing" not in text and "differential privacy" not in text and "nan" not in text
    tests, leaves = report.mechanisms
    assert tests.noise == 0 and tests.mu == math.inf
    assert leaves.noise == (0 if leaf == "counts" else math.inf)


def test_one_warning_says_what_seeding_costs():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(random_state=0).fit(X, Y)
    (warning,) = caught
    assert warning.category is PrivacyLeakWarning and warning.filename == __file__
    for part in ("random_state", "anyone who knows", "not be published", "random_state=None"):
        assert part in str(warning.message)


def test_no_warning_without_a_seed():
    model().fit(X, Y)  # warnings are errors here


def test_one_warning_for_everything_inferred():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(bounds="infer", classes="infer").fit(X, Y)
    (warning,) = caught
    assert warning.category is PrivacyLeakWarning and warning.filename == __file__
    for part in ("bounds of x0", "bounds of x1", "classes", "declare it instead"):
        assert part in str(warning.message)


# As evidence


GUIDED = {"guide": 0.25, "structure": 0.35, "leaves": 0.4}
REPORTS = {
    f"{leaf}-{accounting_}-{g}": privacy.make_report(
        calibration(leaf=leaf, accounting=accounting_, records_per_unit=g), (), SystemBits()
    )
    for leaf in LEAVES
    for accounting_ in ACCOUNTINGS
    for g in (1, 3)
}
for leaf_ in LEAVES:
    REPORTS[f"guided-{leaf_}"] = privacy.make_report(
        calibration(leaf=leaf_, budget_shares=GUIDED, records_per_unit=2), (), SystemBits()
    )
EVERY_REPORT = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS.keys())


def test_the_guide_is_a_mechanism():
    report = REPORTS["guided-counts"]
    guide, *rest = report.mechanisms
    assert guide.part == "guide" and guide.name == "Gaussian sums of the guide"
    assert guide.mu == report.calibration.mu_guide and guide.rho == guide.mu**2 / 2
    assert guide.noise == 2 / guide.mu and guide.share == 0.25
    assert [own.part for own in rest] == ["structure", "leaves"]
    assert "guide (25%): Gaussian sums of the guide, worth one of noise" in str(report)
    fitted = report_of(splitter="guided")
    assert [own.part for own in fitted.mechanisms] == ["guide", "structure", "leaves"]
    assert privacy.verify(fitted, n_features=2, n_classes=2).holds


@EVERY_REPORT
def test_a_report_goes_through_json(report):
    text = report.to_json()
    assert PrivacyReport.from_json(text) == report
    assert PrivacyReport.from_dict(report.to_dict()) == report
    data = json.loads(text, parse_constant=pytest.fail)
    assert data["version"] == __version__ and data["neighbouring"] == "add or remove one unit"
    assert data["unit"] == report.unit and data["entropy"] == "operating system"
    replaced = data["replacing_one_unit"]
    assert (replaced["epsilon"], replaced["delta"]) == privacy.replacement(
        report.epsilon, report.delta
    )
    assert [own["noise"] for own in data["mechanisms"]] == [own.noise for own in report.mechanisms]
    assert data["finite_precision"] == list(report.finite_precision)


@pytest.mark.parametrize("leaf", LEAVES)
def test_reports_without_privacy_go_through_json(leaf):
    for changes in ({"epsilon": math.inf, "threshold": 3}, {"random_state": 0, "bounds": "infer"}):
        report = report_of(leaf=leaf, **changes)
        assert PrivacyReport.from_json(report.to_json()) == report


def changed(data, *keys, value=None):
    """The data with one entry replaced, or taken out."""
    data = json.loads(json.dumps(data))
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    if value is None:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    "keys_and_value",
    [
        (("format",), 2),
        (("epsilon",), "one"),
        (("epsilon",), True),
        (("epsilon",), None),
        (("seeded",), 0),
        (("inferred",), [3]),
        (("mechanisms", 0, "noise"), [1]),
        (("mechanisms", 0, "queries_per_unit"), 1.5),
        (("mechanisms", 0, "colour"), "red"),
        (("calibration", "sigma_tests"), "loud"),
        (("calibration",), 7),
        (("more",), 1),
    ],
)
def test_what_is_no_report_is_refused(keys_and_value):
    keys, value = keys_and_value
    text = changed(report_of().to_dict(), *keys, value=value)
    with pytest.raises(ValueError, match="not a privacy report of lumberjack"):
        PrivacyReport.from_json(text)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"epsilon": NaN}'])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match="not a privacy report"):
        PrivacyReport.from_json(text)


@pytest.mark.parametrize(
    ("keys_and_value", "problem"),
    [
        (("unit", "everybody"), "unit is told wrongly"),
        (("unit", 1), "unit is told wrongly"),
        (("replacing_one_unit", "epsilon", 1.0), "replacing one unit is told wrongly"),
        (("replacing_one_unit", "delta", 1e-9), "replacing one unit is told wrongly"),
        (("replacing_one_unit", "delta", "none"), "replacing one unit is told wrongly"),
        (("replacing_one_unit", 5), "replacing one unit is told wrongly"),
        (("delta_reached", 1e-9), "delta reached is"),
        (("delta_reached", 0.5), "delta reached is"),
    ],
)
def test_results_that_a_report_tells_wrongly_are_noticed(keys_and_value, problem):
    *keys, value = keys_and_value
    true = REPORTS["counts-joint-1"]
    forged = PrivacyReport.from_json(changed(true.to_dict(), *keys, value=value))
    found = privacy.verify(forged, n_features=14, n_classes=2)
    assert not found.holds and problem in str(found)
    # what is written again follows from the numbers, and is not told twice
    assert json.loads(forged.to_json())["unit"] == "one record"
    assert "contradictions" not in forged.to_json()


def test_a_report_may_leave_out_what_follows_from_it():
    data = REPORTS["counts-joint-1"].to_dict()
    del data["unit"], data["replacing_one_unit"]
    assert privacy.verify(PrivacyReport.from_dict(data), n_features=14, n_classes=2).holds
    own = REPORTS["counts-joint-1"].to_dict()
    own["replacing_one_unit"]["delta"] *= 1 + 1e-15  # rounding of another machine
    assert privacy.verify(PrivacyReport.from_dict(own), n_features=14, n_classes=2).holds


def hierarchy_report(**changes):
    used = accounting.calibrate_hierarchy(
        1.0, 1e-6, **{"height": 100, "count_share": 0.3, "records_per_unit": 2, **changes}
    )
    return privacy.make_report(used, (), SystemBits())


HIERARCHIES = [
    hierarchy_report(),
    hierarchy_report(method="top_down", count_share=0),
    hierarchy_report(method="top_down_dense", threshold=1000),
]


@pytest.mark.parametrize("report", HIERARCHIES)
def test_reports_of_hierarchies_are_verified_and_written(report):
    found = privacy.verify(report)
    assert found.holds and found.delta == report.delta_reached
    again = PrivacyReport.from_json(report.to_json())
    assert again == report and privacy.verify(again).holds


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": 9e-7},
        {"epsilon": 0.99},
        {"records_per_unit": 4},
        {"accounting": "split"},
        {"finite_precision": (0.0, 0.0)},
        {"slack": 1.0},
        {"threshold": 1.0},
        {"mechanisms": ()},
        {"mechanisms": HIERARCHIES[0].mechanisms[:1]},
        {"mechanisms": HIERARCHIES[0].mechanisms * 2},
        {"calibration": dataclasses.replace(HIERARCHIES[0].calibration, height=1000)},
        {"calibration": dataclasses.replace(HIERARCHIES[0].calibration, method="top_down")},
        {"calibration": dataclasses.replace(HIERARCHIES[0].calibration, method="top_down_dense")},
        {"calibration": REPORTS["counts-joint-1"].calibration},
    ],
)
def test_a_hierarchy_that_claims_too_much_is_noticed(changes):
    assert not privacy.verify(dataclasses.replace(HIERARCHIES[0], **changes)).holds


@pytest.mark.parametrize("part", ["structure", "counts"])
def test_less_noise_of_a_hierarchy_is_noticed(part):
    report = HIERARCHIES[0]
    mechanisms = tuple(
        dataclasses.replace(own, noise=0.999 * own.noise) if own.part == part else own
        for own in report.mechanisms
    )
    weak = dataclasses.replace(report, mechanisms=mechanisms, slack=0.999 * report.slack)
    rebuilt = privacy._rebuild(weak)
    consistent = dataclasses.replace(
        weak, calibration=rebuilt, mechanisms=tuple(privacy.list_mechanisms(rebuilt))
    )
    found = privacy.verify(consistent)
    assert not found.holds and "its noise gives delta" in str(found)


@EVERY_REPORT
def test_a_report_is_verified(report):
    found = privacy.verify(report, n_features=14, n_classes=2)
    assert found.holds and found.problems == ()
    assert found.delta == report.delta_reached
    assert str(found).startswith("holds: (1, 1e-0")
    assert "unit" in str(found) and "\n" not in str(found)


def mechanism_changed(report, part, **changes):
    """The report with one mechanism changed, the calibration made to agree with it."""
    mechanisms = tuple(
        dataclasses.replace(own, **changes) if own.part == part else own
        for own in report.mechanisms
    )
    report = dataclasses.replace(report, mechanisms=mechanisms)
    rebuilt = privacy._rebuild(report)
    return dataclasses.replace(
        report, calibration=rebuilt, mechanisms=tuple(privacy.list_mechanisms(rebuilt))
    )


@EVERY_REPORT
def test_less_noise_is_noticed(report):
    # The slack shrinks, too: with the same slack, less noise makes the tail smaller.
    tests = report.mechanisms[-2]
    less = dataclasses.replace(report, slack=0.999 * report.slack)
    found = privacy.verify(mechanism_changed(less, "structure", noise=0.999 * tests.noise))
    assert not found.holds and found.delta > report.delta_reached
    assert "DOES NOT HOLD" in str(found) and "its noise gives delta" in str(found)
    leaves = report.mechanisms[-1]
    factor = 1.01 if report.calibration.leaf == "majority" else 1 / 1.01
    assert not privacy.verify(mechanism_changed(report, "leaves", noise=factor * leaves.noise))[0]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"delta": 9e-7}, "claimed is 9e-07"),
        ({"epsilon": 0.99}, "its noise gives delta"),
        ({"delta_reached": 1e-7}, "delta reached is"),
        ({"records_per_unit": 2}, ""),
        ({"slack": 100.0}, "its noise gives delta"),
        ({"threshold": 10.0}, "threshold is below"),
        ({"finite_precision": (0.0, 0.0)}, "finite precision"),
        ({"finite_precision": (-1.0, 0.0)}, "negative"),
        ({"neighbouring": "replace one unit"}, "neighbouring relation"),
        ({"accounting": "hopeful"}, "accounting is unknown"),
        ({"seeded": True}, "random_state"),
        ({"entropy": "random_state"}, "random_state"),
        ({"inferred": ("bounds of x",)}, "bounds of x"),
        ({"mechanisms": ()}, "no mechanism"),
        ({"epsilon": math.inf}, "no privacy"),
        ({"epsilon": "one"}, "no mechanism"),
    ],
)
def test_a_claim_that_does_not_follow_is_noticed(changes, part):
    found = privacy.verify(dataclasses.replace(REPORTS["counts-joint-1"], **changes))
    assert not found.holds and part in str(found)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("leaves", {"noise": math.inf}),
        ("leaves", {"noise": -50.0}),
        ("structure", {"noise": math.nan}),
        ("structure", {"mu": 0.0}),
        ("structure", {"queries_per_unit": 7}),
        ("leaves", {"queries_per_unit": 1}),
        ("leaves", {"name": "prayer"}),
        ("structure", {"part": "leaves"}),
        ("structure", {"share": 3.0}),
    ],
)
def test_a_mechanism_that_contradicts_itself_is_noticed(part, changes):
    report = REPORTS["counts-joint-1"]
    mechanisms = tuple(
        dataclasses.replace(own, **changes) if own.part == part else own
        for own in report.mechanisms
    )
    assert not privacy.verify(dataclasses.replace(report, mechanisms=mechanisms)).holds


def test_the_allowance_for_finite_precision_grows_with_the_domain():
    used = calibration()  # of 14 features
    report = privacy.make_report(used, (), SystemBits())
    assert privacy.verify(report, n_features=14, n_classes=2).holds
    found = privacy.verify(report, n_features=14, n_classes=2000)
    assert not found.holds and "finite precision" in str(found)


# A second accountant


def rdp_delta(event, epsilon):
    from dp_accounting.rdp import RdpAccountant

    orders = [1 + x / 20 for x in range(1, 200)] + list(range(11, 2000))
    return RdpAccountant(orders).compose(event).get_delta(epsilon)


def pld_delta(event, epsilon):
    from dp_accounting.pld import PLDAccountant

    return PLDAccountant().compose(event).get_delta(epsilon)


@EVERY_REPORT
def test_an_event_for_dp_accounting(report):
    pytest.importorskip("dp_accounting")
    event, tail, loss = report.to_dp_event()
    mu = math.hypot(*(own.mu for own in report.mechanisms))
    rho = report.calibration.rho_leaves
    tests = report.mechanisms[-2]
    n_tests = tests.queries_per_unit
    assert tail == accounting.tail_delta(n_tests, tests.noise, report.slack)
    assert loss == pytest.approx(tail)
    epsilon = report.epsilon
    if rho > 0:
        zcdp = accounting.zcdp_delta(epsilon, rho + mu**2 / 2)
        assert zcdp <= rdp_delta(event, epsilon) * (1 + 1e-6) < 1.05 * zcdp
    else:
        gaussian = accounting.gaussian_delta(epsilon, mu)
        # The PLD is discretised and pessimistic.
        assert gaussian <= pld_delta(event, epsilon) * (1 + 1e-6) < 1.02 * gaussian
        # RDP knows the same event.
        assert gaussian < rdp_delta(event, epsilon) < 20 * gaussian
    whole = rdp_delta(event, epsilon) if rho > 0 else pld_delta(event, epsilon)
    if report.accounting == "joint":
        assert whole + tail <= 1.03 * report.delta


def test_without_noise_there_is_no_event():
    with pytest.raises(ValueError, match="infinite epsilon"):
        report_of(epsilon=math.inf, threshold=3).to_dp_event()


def test_without_dp_accounting_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(ImportError, match="pip install dp-accounting"):
        report_of().to_dp_event()
