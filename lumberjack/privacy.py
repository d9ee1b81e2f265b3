"""The guarantee of a fitted estimator, as data and as text.

`PrivacyReport` says what a fit promises and how, `verify` computes it anew.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from decimal import ROUND_CEILING, Context, Decimal
from numbers import Real
from typing import NamedTuple

from lumberjack import accounting

NEIGHBOURING = "add or remove one unit"
REPORT_FORMAT = 1

SYSTEM_ENTROPY = "operating system"
SEEDED_ENTROPY = "random_state"

TESTS = "thresholded Gaussian tests"
COUNTS = "rounded Gaussian counts"
CHOICE = "exponential choice of a class"
GUIDE = "Gaussian sums of the guide"


# Report ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mechanism:
    """One private mechanism of a fit.

    Attributes
    ----------
    part : str
        What it is for: "guide", "structure" or "leaves".
    name : str
        The mechanism: "Gaussian sums of the guide", "thresholded Gaussian tests",
        "rounded Gaussian counts" or "exponential choice of a class".
    queries_per_unit : int
        In how many of its answers one unit takes part, at most.
    noise : float
        Standard deviation of the noise in records; for the exponential mechanism its epsilon per
        leaf. The sums of the guide are told as the one sum that is worth the same.
    share : float
        Share of the budget.
    mu : float
        Its Gaussian differential privacy; 0 for the exponential mechanism.
    rho : float
        Its zero-concentrated differential privacy.
    """

    part: str
    name: str
    queries_per_unit: int
    noise: float
    share: float
    mu: float
    rho: float

    def __str__(self):
        if self.name == CHOICE:
            noise = f"epsilon {self.noise:.4g} a leaf"
        else:
            noise = f"noise {self.noise:.4g} records"
        return (
            f"{self.part} ({self.share:.0%}): {self.name}, {noise}, "
            f"a unit is in at most {self.queries_per_unit}"
        )


class DpEvent(NamedTuple):
    """What `PrivacyReport.to_dp_event` returns.

    Attributes
    ----------
    event : dp_accounting.DpEvent
        All mechanisms, for neighbours by adding or removing, as if no node that only the unit
        fills ever passed a test.
    tail_delta : float
        Probability that one does, at most: added to the event's delta at epsilon it bounds what
        adding a unit reveals.
    loss : float
        ``-log(1 - tail_delta)``: the event's delta at epsilon - loss bounds what removing a unit
        reveals.
    """

    event: object
    tail_delta: float
    loss: float


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantee that a fitted estimator carries, and how it was reached.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee: (epsilon, delta)-differential privacy.
    delta_reached : float
        Delta recomputed from the noise that was used; never above `delta`.
    neighbouring : str
        The neighbouring relation.
    records_per_unit : int
        Up to how many records one protected unit (a person) holds.
    accounting : str
        "joint" or "split".
    threshold, slack : float
        A node is split if its noisy count reaches the threshold; counts up to
        ``threshold - records_per_unit - slack`` never do.
    mechanisms : tuple of Mechanism
    seeded : bool
        The noise came from `random_state`: the guarantee does not hold against anyone who knows
        the seed, and parameters and pickles contain it.
    entropy : str
        Where the random bits came from.
    inferred : tuple of str
        What was read from the data outside the guarantee.
    finite_precision : tuple of two floats
        Epsilon and delta set aside for the finite precision of the samplers.
    calibration : accounting.Calibration
        Every number of the calibration.
    version : str
        Version of lumberjack that made the fit.

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier, PrivacyReport
    >>> model = LumberjackClassifier(epsilon=2, delta=1e-3, bounds=(0, 1), classes=[0, 1])
    >>> report = model.fit([[0.25], [0.75]], [0, 1]).privacy_
    >>> PrivacyReport.from_json(report.to_json()) == report
    True
    """

    epsilon: float
    delta: float
    delta_reached: float
    neighbouring: str
    records_per_unit: int
    accounting: str
    threshold: float
    slack: float
    mechanisms: tuple
    seeded: bool
    entropy: str
    inferred: tuple
    finite_precision: tuple
    calibration: accounting.Calibration
    version: str = ""

    @property
    def is_private(self):
        """Whether there is any guarantee: a finite epsilon and nothing beside the mechanism."""
        return math.isfinite(self.epsilon) and not self.seeded and not self.inferred

    @property
    def unit(self):
        """The protected unit in words."""
        return unit_text(self.records_per_unit)

    def __str__(self):
        lines = [f"{guarantee_text(self.epsilon, self.delta)}, {self.neighbouring}"]
        lines.append(f"unit: {self.unit}")
        if math.isfinite(self.epsilon):
            lines.append(f"replacing one unit: {replacement_text(self.epsilon, self.delta)}")
        lines.append(f"accounting: {self.accounting}, delta reached {self.delta_reached:.3g}")
        lines.append(f"threshold: a node of {self.threshold:.4g} records is split half the time")
        lines += [str(mechanism) for mechanism in self.mechanisms]
        lines.append(f"entropy: {self.entropy}")
        if self.seeded:
            lines.append(
                "SEEDED: the guarantee does not hold against anyone who knows the seed; "
                "do not publish this model"
            )
        if self.inferred:
            lines.append("READ FROM THE DATA, outside the guarantee: " + ", ".join(self.inferred))
        return "\n".join(lines)

    def to_dict(self):
        """The report as plain data: dicts, lists, numbers and text.

        Returns
        -------
        dict
            Beside the attributes, "unit" in words and what "replacing_one_unit" means.
        """
        epsilon, delta = replacement(self.epsilon, self.delta)
        return {
            "format": REPORT_FORMAT,
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "mechanisms": [asdict(mechanism) for mechanism in self.mechanisms],
            "inferred": list(self.inferred),
            "finite_precision": list(self.finite_precision),
            "calibration": {
                **asdict(self.calibration),
                "budget_shares": [list(pair) for pair in self.calibration.budget_shares],
            },
            "unit": self.unit,
            "replacing_one_unit": {"epsilon": epsilon, "delta": delta},
        }

    def to_json(self):
        """The report as JSON. Numbers survive to the last bit; infinity is the text "inf"."""
        return json.dumps(_without_infinity(self.to_dict()), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, data):
        """The report that `to_dict` or JSON tells.

        Parameters
        ----------
        data : dict

        Returns
        -------
        PrivacyReport

        Raises
        ------
        ValueError
            It is not the data of a report. What it claims is not checked here: see `verify`.
        """
        try:
            return cls(**_read_report(data))
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"this is not a privacy report of lumberjack: {error}") from None

    @classmethod
    def from_json(cls, text):
        """The report that `to_json` wrote."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this is not a privacy report in JSON: {error}") from None
        return cls.from_dict(data)

    def to_dp_event(self):
        """The mechanisms as an event of dp_accounting, for a second opinion.

        The thresholded tests are more than Gaussian mechanisms: see `DpEvent` for their tail,
        which no event can tell. Finite precision is not part of it.

        Returns
        -------
        DpEvent

        Raises
        ------
        ImportError
            dp_accounting, which is optional, is not installed.
        ValueError
            There is no noise (epsilon infinite).
        """
        if not math.isfinite(self.epsilon):
            raise ValueError("a fit with an infinite epsilon has no event: it adds no noise")
        try:
            from dp_accounting import dp_event
        except ImportError:
            raise ImportError(
                "to_dp_event needs dp_accounting: python -m pip install dp-accounting"
            ) from None
        events = [_dp_event(dp_event, own, self.records_per_unit) for own in self.mechanisms]
        tests = _only(self.mechanisms, "structure")
        tail = accounting.tail_delta(tests.queries_per_unit, tests.noise, self.slack)
        return DpEvent(dp_event.ComposedDpEvent(events), tail, -math.log1p(-tail))


def _dp_event(dp_event, mechanism, unit):
    if mechanism.name == CHOICE:
        return dp_event.ZCDpEvent(mechanism.rho)
    gaussian = dp_event.GaussianDpEvent(mechanism.noise / unit)
    return dp_event.SelfComposedDpEvent(gaussian, mechanism.queries_per_unit // unit)


def _only(mechanisms, part):
    (found,) = [mechanism for mechanism in mechanisms if mechanism.part == part]
    return found


def _without_infinity(value):
    """Plain data with "inf" for infinity, which JSON cannot tell."""
    if isinstance(value, dict):
        return {key: _without_infinity(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(own) for own in value]
    return "inf" if isinstance(value, float) and value == math.inf else value


def _read_report(data):
    """Fields of a report from plain data."""
    data = dict(data)
    if data.pop("format") != REPORT_FORMAT:
        raise ValueError(f"its format is not {REPORT_FORMAT}")
    for derived in ("unit", "replacing_one_unit"):
        data.pop(derived, None)
    calibration = dict(data["calibration"])
    calibration["budget_shares"] = tuple(
        (str(name), _read(share, float)) for name, share in calibration["budget_shares"]
    )
    data["calibration"] = _read_fields(accounting.Calibration, calibration)
    data["mechanisms"] = tuple(_read_fields(Mechanism, own) for own in data["mechanisms"])
    data["inferred"] = tuple(_read(own, str) for own in data["inferred"])
    epsilon, delta = data["finite_precision"]
    data["finite_precision"] = (_read(epsilon, float), _read(delta, float))
    return vars(_read_fields(PrivacyReport, data))


def _read_fields(cls, data):
    """A dataclass from a dict with exactly its fields, each of its type."""
    data = dict(data)
    types = {field.name: field.type for field in fields(cls)}
    wrong = types.keys() ^ data.keys()
    if wrong:
        raise ValueError(f"{min(wrong)!r} is unknown or missing")
    return cls(**{name: _read(data[name], types[name]) for name in types})


def _read(value, kind):
    if kind is float:
        if value == "inf":
            return math.inf
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise ValueError(f"{value!r} is not a number")
        return float(value)
    if kind == float | None:
        return None if value is None else _read(value, float)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{value!r} is not of the type {kind.__name__}")
    return value


# Text -----------------------------------------------------------------------------------------


def rounded_up(value, digits=6):
    """A number as short text, never less than the number.

    >>> rounded_up(0.1), rounded_up(1e-6), rounded_up(2.00000001), rounded_up(3.7101e-6, 3)
    ('0.1', '1e-06', '2.00001', '3.72e-06')
    """
    exact = Decimal(repr(float(value)))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(exact)):.{digits}g}"


def unit_text(records_per_unit):
    """The protected unit in words.

    >>> unit_text(1), unit_text(4)
    ('one record', 'all records of one person, up to 4')
    """
    if records_per_unit == 1:
        return "one record"
    return f"all records of one person, up to {records_per_unit}"


def guarantee_text(epsilon, delta):
    """The guarantee in one phrase, its numbers rounded up.

    >>> guarantee_text(1.0, 1e-6)
    '(1, 1e-06)-differential privacy'
    >>> guarantee_text(float("inf"), 1e-6)
    'NO PRIVACY (epsilon is infinite)'
    """
    if not math.isfinite(epsilon):
        return "NO PRIVACY (epsilon is infinite)"
    return f"({rounded_up(epsilon)}, {rounded_up(delta)})-differential privacy"


def replacement(epsilon, delta):
    """(epsilon, delta) when one unit is replaced: one removal and one addition.

    Group privacy of two steps: (2 epsilon, (1 + e^epsilon) delta) (Dwork, Roth 2014, Theorem 2.2
    with the delta of Vadhan 2017, Lemma 2.2).

    >>> replacement(1.0, 0.125)
    (2.0, 0.46478522855738...)
    """
    if not math.isfinite(epsilon):
        return math.inf, 1.0
    replaced = math.nextafter((1.0 + math.exp(min(epsilon, 700.0))) * delta * (1 + 1e-15), 2.0)
    return 2 * epsilon, min(1.0, replaced)


def replacement_text(epsilon, delta):
    """What the guarantee means when one unit is replaced, rounded up; see `replacement`.

    >>> replacement_text(1.0, 1e-6)
    '(2, 3.72e-06)-differential privacy'
    """
    epsilon, delta = replacement(epsilon, delta)
    return f"({rounded_up(epsilon)}, {rounded_up(delta, 3)})-differential privacy"


# Making a report ------------------------------------------------------------------------------


def make_report(calibration, inferred, bits):
    """The report of one fit.

    Parameters
    ----------
    calibration : accounting.Calibration
    inferred : tuple of str
    bits : noise.SystemBits or noise.SeededBits

    Returns
    -------
    PrivacyReport
    """
    return PrivacyReport(
        epsilon=calibration.epsilon,
        delta=calibration.delta,
        delta_reached=accounting.recomputed_delta(calibration),
        neighbouring=NEIGHBOURING,
        records_per_unit=calibration.records_per_unit,
        accounting=calibration.accounting,
        threshold=calibration.threshold,
        slack=calibration.slack,
        mechanisms=tuple(list_mechanisms(calibration)),
        seeded=bits.seeded,
        entropy=SEEDED_ENTROPY if bits.seeded else SYSTEM_ENTROPY,
        inferred=tuple(inferred),
        finite_precision=(calibration.precision_epsilon, calibration.precision_delta),
        calibration=calibration,
        version=version(),
    )


def version():
    from lumberjack import __version__  # not yet there when this module is imported

    return __version__


def list_mechanisms(calibration):
    """Yield the mechanisms that a calibration describes."""
    shares = dict(calibration.budget_shares)
    unit = calibration.records_per_unit
    if calibration.mu_guide > 0:
        yield Mechanism(
            part="guide",
            name=GUIDE,
            queries_per_unit=unit,
            noise=unit / calibration.mu_guide,
            share=shares["guide"],
            mu=calibration.mu_guide,
            rho=calibration.mu_guide**2 / 2,
        )
    yield Mechanism(
        part="structure",
        name=TESTS,
        queries_per_unit=unit * calibration.tests_per_record,
        noise=calibration.sigma_tests,
        share=shares["structure"],
        mu=calibration.mu_structure,
        rho=calibration.mu_structure**2 / 2,
    )
    majority = calibration.leaf == "majority"
    yield Mechanism(
        part="leaves",
        name=CHOICE if majority else COUNTS,
        queries_per_unit=unit * calibration.n_estimators,
        noise=calibration.epsilon_leaf if majority else calibration.sigma_leaves,
        share=shares["leaves"],
        mu=calibration.mu_leaves,
        rho=calibration.rho_leaves if majority else calibration.mu_leaves**2 / 2,
    )


# Verifying a report ---------------------------------------------------------------------------


class Verification(NamedTuple):
    """What `verify` found.

    Attributes
    ----------
    holds : bool
        Whether the claim of the report follows from the numbers in it.
    delta : float
        Delta at the claimed epsilon, computed anew; 1.0 if it could not be.
    problems : tuple of str
        Why the claim does not hold.
    claim : str
        The guarantee that was checked.
    """

    holds: bool
    delta: float
    problems: tuple
    claim: str

    def __str__(self):
        if self.holds:
            return f"holds: {self.claim}; delta recomputed {rounded_up(self.delta, 3)}"
        return f"DOES NOT HOLD: {self.claim}: " + "; ".join(self.problems)


def verify(report, *, n_features=1, n_classes=1):
    """Compute delta anew from the noise in a report and say whether its claim holds.

    Neither `delta_reached` nor any other result in the report is trusted: delta follows from the
    noise of each mechanism, in how many of its answers a unit is, the slack and the threshold.
    What cannot be checked is whether the fit did what the report says.

    Parameters
    ----------
    report : PrivacyReport
    n_features, n_classes : int, default=1
        Sizes of the domain, if known; the allowance for finite precision depends on them.

    Returns
    -------
    Verification

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier
    >>> model = LumberjackClassifier(epsilon=1, delta=1e-3, bounds=(0, 1), classes=[0, 1])
    >>> report = model.fit([[0.25], [0.75]], [0, 1]).privacy_
    >>> verify(report).holds
    True
    >>> from dataclasses import replace
    >>> print(verify(replace(report, delta=1e-4)))
    DOES NOT HOLD: ...
    """
    problems, delta, claim = [], 1.0, "no claim"
    try:
        claim = f"{guarantee_text(report.epsilon, report.delta)}, {report.neighbouring}"
        claim += f", unit: {report.unit}"
        problems += _problems_beside(report)
        rebuilt = _rebuild(report)
        problems += _contradictions(report, rebuilt)
        delta = accounting.recomputed_delta(rebuilt)
        needed = accounting.needed_precision(rebuilt, n_features=n_features, n_classes=n_classes)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        problems.append(f"its numbers make no mechanism ({error})")
        return Verification(False, delta, tuple(problems), claim)
    if any(own < least for own, least in zip(report.finite_precision, needed, strict=True)):
        problems.append("too little is set aside for finite precision")
    if not delta <= report.delta:
        problems.append(
            f"its noise gives delta {rounded_up(delta, 3)} at epsilon {report.epsilon:g}, "
            f"claimed is {report.delta:g}"
        )
    if not delta <= report.delta_reached:
        problems.append(f"delta reached is {rounded_up(delta, 3)}, not {report.delta_reached:.3g}")
    return Verification(not problems, delta, tuple(problems), claim)


def _problems_beside(report):
    """What takes the guarantee away whatever the noise is."""
    if not report.epsilon < math.inf:
        yield "no privacy, epsilon is infinite"
    if report.seeded or report.entropy != SYSTEM_ENTROPY:
        yield "the noise came from random_state: anyone who knows the seed can undo it"
    if report.inferred:
        yield "read from the data: " + ", ".join(report.inferred)
    if report.neighbouring != NEIGHBOURING:
        yield f"the neighbouring relation is not {NEIGHBOURING!r}"


def _rebuild(report):
    """The calibration that the mechanisms of a report tell."""
    mechanisms = {own.part: own for own in report.mechanisms}
    if len(mechanisms) < len(report.mechanisms) or mechanisms.keys() - {"guide"} != {
        "structure",
        "leaves",
    }:
        raise ValueError("structure and leaves must be there, each once")
    if not all(0 < own.noise < math.inf for own in report.mechanisms):
        raise ValueError("noise must be positive and finite")
    tests, leaves = mechanisms["structure"], mechanisms["leaves"]
    guide = mechanisms.get("guide")
    if leaves.name not in (COUNTS, CHOICE):
        raise ValueError("the mechanism of the leaves is unknown")
    majority, unit = leaves.name == CHOICE, report.records_per_unit
    shares = [own.share if own else 0.0 for own in (guide, tests, leaves)]
    if min(shares) < 0 or math.fsum(shares) > 1 + 1e-15:
        raise ValueError("the shares sum to more than 1")
    return accounting.Calibration(
        epsilon=report.epsilon,
        delta=report.delta,
        accounting=report.accounting,
        leaf="majority" if majority else "counts",
        n_estimators=leaves.queries_per_unit // unit,
        max_depth=report.calibration.max_depth,
        records_per_unit=unit,
        budget_shares=tuple(zip(("guide", "structure", "leaves"), shares, strict=True)),
        tests_per_record=tests.queries_per_unit // unit,
        sigma_tests=tests.noise,
        slack=report.slack,
        threshold=report.threshold,
        sigma_leaves=None if majority else leaves.noise,
        epsilon_leaf=leaves.noise if majority else None,
        mu_guide=guide.mu if guide else 0.0,
        precision_epsilon=report.finite_precision[0],
        precision_delta=report.finite_precision[1],
    )


def _contradictions(report, rebuilt):
    """Where the mechanisms of a report and its other numbers differ."""
    if rebuilt.accounting not in ("joint", "split"):
        yield "its accounting is unknown"
    if min(report.finite_precision) < 0 or not report.slack >= 0:
        yield "an allowance or the slack is negative"
    told = tuple(list_mechanisms(rebuilt))
    if told != report.mechanisms:
        yield "the mechanisms contradict their own noise"
    if rebuilt != report.calibration:
        yield "the mechanisms and the calibration differ"
    if rebuilt.tests_per_record != accounting.tests_per_record(
        rebuilt.n_estimators, rebuilt.max_depth
    ):
        yield "the number of tests does not follow from trees and depth"
