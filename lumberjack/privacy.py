"""The guarantee of a fitted estimator, as data and as text.

`PrivacyReport` says what a fit promises and how, `verify` computes it anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import ROUND_CEILING, Context, Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_origin, get_type_hints

from lumberjack import accounting
from lumberjack.accounting import Calibration, HierarchyCalibration

if TYPE_CHECKING:
    from lumberjack.noise import SeededBits, SystemBits

__all__ = ["DpEvent", "Mechanism", "PrivacyReport", "Verification", "verify"]

NEIGHBOURING = "add or remove one unit"
REPORT_FORMAT = 1
DERIVED = ("unit", "replacing_one_unit")

# What a result that is computed anew on another machine may differ by, relatively.
ROUNDING = 1e-9

SYSTEM_ENTROPY = "operating system"
SEEDED_ENTROPY = "random_state"

TESTS = "thresholded Gaussian tests"
COUNTS = "rounded Gaussian counts"
CHOICE = "exponential choice of a class"
GUIDE = "Gaussian sums of the guide"

Record = TypeVar("Record", bound=Any)  # a dataclass


# Report ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mechanism:
    """One private mechanism of a fit.

    Attributes
    ----------
    part : str
        What it is for: "guide", "structure" or "leaves" of a forest, "structure" or "counts" of a
        hierarchy.
    name : str
        The mechanism: "Gaussian sums of the guide", "thresholded Gaussian tests",
        "rounded Gaussian counts" or "exponential choice of a class".
    queries_per_unit : int
        In how many of its answers one unit takes part, at most, or in the one that `noise` is of.
    noise : float
        Standard deviation of the noise in records; for the exponential mechanism its epsilon per
        leaf. The sums of the guide, and the counts of a hierarchy, of which a record is in several
        with more noise, are told as the single one that is worth the same.
    share : float
        Share of the budget.
    mu : float
        Its Gaussian differential privacy; 0 for the exponential mechanism.
    rho : float
        Its zero-concentrated differential privacy.

    Examples
    --------
    >>> from lumberjack import HierarchicalHeavyHitters
    >>> search = HierarchicalHeavyHitters(epsilon=1, delta=1e-6, bit_length=16).fit([1, 2, 3])
    >>> for mechanism in search.privacy_.mechanisms:
    ...     print(mechanism)
    structure (75%): thresholded Gaussian tests, noise 11.21 records, a unit is in at most 5
    counts (25%): rounded Gaussian counts, worth one of noise 8.68 records that a unit changes by 1
    """

    part: str
    name: str
    queries_per_unit: int
    noise: float
    share: float
    mu: float
    rho: float

    def __str__(self) -> str:
        mechanism = f"{self.part} ({self.share:.0%}): {self.name}"
        if self.part in ("guide", "counts"):
            return (
                f"{mechanism}, worth one of noise {self.noise:.4g} records "
                f"that a unit changes by {self.queries_per_unit}"
            )
        if self.name == CHOICE:
            noise = f"epsilon {self.noise:.4g} a leaf"
        else:
            noise = f"noise {self.noise:.4g} records"
        return f"{mechanism}, {noise}, a unit is in at most {self.queries_per_unit}"


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

    Examples
    --------
    With dp_accounting, the delta of a forest at its epsilon, adding a unit and removing one:

    >>> from dp_accounting.pld import PLDAccountant  # doctest: +SKIP
    >>> from lumberjack import LumberjackClassifier
    >>> model = LumberjackClassifier(epsilon=2, delta=1e-3, bounds=(0, 1), classes=[0, 1])
    >>> report = model.fit([[0.25], [0.75]], [0, 1]).privacy_
    >>> event, tail_delta, loss = report.to_dp_event()  # doctest: +SKIP
    >>> accountant = PLDAccountant().compose(event)  # doctest: +SKIP
    >>> adding = accountant.get_delta(2.0) + tail_delta  # doctest: +SKIP
    >>> removing = accountant.get_delta(2.0 - loss)  # doctest: +SKIP
    >>> max(adding, removing) <= 1e-3  # doctest: +SKIP
    True
    """

    event: Any
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
        A node is split (in a hierarchy: heavy) if its noisy count reaches the threshold; counts
        up to ``threshold - records_per_unit - slack`` never do.
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
    calibration : accounting.Calibration or accounting.HierarchyCalibration
        Every number of the calibration.
    version : str
        Version of lumberjack that made the fit.
    contradictions : tuple of str
        What the data that the report was read from told beside it and what does not follow from
        it. `verify` lists them; they are not written again.

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
    mechanisms: tuple[Mechanism, ...]
    seeded: bool
    entropy: str
    inferred: tuple[str, ...]
    finite_precision: tuple[float, float]
    calibration: Calibration | HierarchyCalibration
    version: str = ""
    contradictions: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def is_private(self) -> bool:
        """Whether there is any guarantee: a finite epsilon and nothing beside the mechanism."""
        return math.isfinite(self.epsilon) and not self.seeded and not self.inferred

    @property
    def unit(self) -> str:
        """The protected unit in words."""
        return unit_text(self.records_per_unit)

    def __str__(self) -> str:
        lines = [f"{guarantee_text(self.epsilon, self.delta)}, {self.neighbouring}"]
        lines.append(f"unit: {self.unit}")
        if math.isfinite(self.epsilon):
            lines.append(f"replacing one unit: {replacement_text(self.epsilon, self.delta)}")
        lines.append(f"accounting: {self.accounting}, delta reached {self.delta_reached:.3g}")
        lines.append(
            f"threshold: a node of {self.threshold:.4g} records is {self._outcome} half the time"
        )
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

    @property
    def _outcome(self) -> str:
        return "heavy" if isinstance(self.calibration, HierarchyCalibration) else "split"

    def _derived(self) -> dict[str, Any]:
        """What `to_dict` tells beside the attributes; it follows from them."""
        epsilon, delta = replacement(self.epsilon, self.delta)
        return {
            "unit": self.unit,
            "replacing_one_unit": {"epsilon": epsilon, "delta": delta},
        }

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data: dicts, lists, numbers and text.

        Returns
        -------
        dict
            Beside the attributes, "unit" in words and what "replacing_one_unit" means.
        """
        return {
            "format": REPORT_FORMAT,
            **{name: getattr(self, name) for name in _written_fields()},
            "mechanisms": [asdict(mechanism) for mechanism in self.mechanisms],
            "inferred": list(self.inferred),
            "finite_precision": list(self.finite_precision),
            "calibration": {
                **asdict(self.calibration),
                "budget_shares": [list(pair) for pair in self.calibration.budget_shares],
            },
            **self._derived(),
        }

    def to_json(self) -> str:
        """The report as JSON. Numbers survive to the last bit; infinity is the text "inf"."""
        return json.dumps(_without_infinity(self.to_dict()), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyReport:
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
            report = cls(**_read_report(data))
            return replace(report, contradictions=tuple(_wrongly_told(report, data)))
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"this is not a privacy report of lumberjack: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> PrivacyReport:
        """The report that `to_json` wrote.

        Parameters
        ----------
        text : str or bytes

        Returns
        -------
        PrivacyReport

        Raises
        ------
        ValueError
            It is not JSON, or not that of a report. What it claims is not checked here: see
            `verify`.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this is not a privacy report in JSON: {error}") from None
        return cls.from_dict(data)

    def to_dp_event(self) -> DpEvent:
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
        n_tests = tests.queries_per_unit if self.calibration.lone_tests else 0
        tail = accounting.tail_delta(n_tests, tests.noise, self.slack)
        return DpEvent(dp_event.ComposedDpEvent(events), tail, -math.log1p(-tail))


def _dp_event(dp_event: Any, mechanism: Mechanism, unit: int) -> Any:
    if mechanism.name == CHOICE:
        return dp_event.ZCDpEvent(mechanism.rho)
    gaussian = dp_event.GaussianDpEvent(mechanism.noise / unit)
    return dp_event.SelfComposedDpEvent(gaussian, mechanism.queries_per_unit // unit)


def _only(mechanisms: Iterable[Mechanism], part: str) -> Mechanism:
    (found,) = [mechanism for mechanism in mechanisms if mechanism.part == part]
    return found


def _without_infinity(value: Any) -> Any:
    """Plain data with "inf" for infinity, which JSON cannot tell."""
    if isinstance(value, dict):
        return {key: _without_infinity(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(own) for own in value]
    return "inf" if isinstance(value, float) and value == math.inf else value


def _read_report(data: dict[str, Any]) -> dict[str, Any]:
    """Fields of a report from plain data."""
    data = dict(data)
    if data.pop("format", None) != REPORT_FORMAT:
        raise ValueError(f"its format is not {REPORT_FORMAT}")
    for derived in DERIVED:
        data.pop(derived, None)
    calibration = dict(data["calibration"])
    calibration["budget_shares"] = tuple(
        (str(name), _read(share, float)) for name, share in calibration["budget_shares"]
    )
    kind: type = HierarchyCalibration if "method" in calibration else Calibration
    data["calibration"] = _read_fields(kind, calibration)
    data["mechanisms"] = tuple(_read_fields(Mechanism, own) for own in data["mechanisms"])
    data["inferred"] = tuple(_read(own, str) for own in data["inferred"])
    epsilon, delta = data["finite_precision"]
    data["finite_precision"] = (_read(epsilon, float), _read(delta, float))
    return vars(_read_fields(PrivacyReport, data))


def _written_fields() -> list[str]:
    return [own.name for own in fields(PrivacyReport) if own.compare]


def _wrongly_told(report: PrivacyReport, data: dict[str, Any]) -> Iterator[str]:
    """Results in the data of a report that do not follow from its other numbers."""
    for name, own in _without_infinity(report._derived()).items():
        if name in data and not _same(data[name], own):
            yield f"{name.replace('_', ' ')} is told wrongly"


def _same(told: Any, own: Any) -> bool:
    """Whether a derived entry is told as it is, but for the rounding of another machine."""
    if isinstance(own, dict):
        return (
            isinstance(told, dict)
            and told.keys() == own.keys()
            and all(_same(told[key], own[key]) for key in own)
        )
    if isinstance(own, float) and isinstance(told, int | float) and not isinstance(told, bool):
        return math.isclose(told, own, rel_tol=ROUNDING)
    return type(told) is type(own) and told == own


def _read_fields(cls: type[Record], data: dict[str, Any]) -> Record:
    """A dataclass from a dict with exactly its fields, each of its type."""
    data = dict(data)
    hints = get_type_hints(cls)
    types = {own.name: hints[own.name] for own in fields(cls) if own.compare}
    wrong = types.keys() ^ data.keys()
    if wrong:
        raise ValueError(f"{min(wrong)!r} is unknown or missing")
    return cls(**{name: _read(data[name], types[name]) for name in types})


def _read(value: Any, kind: Any) -> Any:
    """A value that has the type of a hint; of a tuple with any entries."""
    if kind is float:
        if value == "inf":
            return math.inf
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise ValueError(f"{value!r} is not a number")
        return float(value)
    if kind == float | None:
        return None if value is None else _read(value, float)
    if get_origin(kind) is tuple:
        kind = tuple
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{value!r} is not of the type {getattr(kind, '__name__', kind)}")
    return value


# Text -----------------------------------------------------------------------------------------


def rounded_up(value: float, digits: int = 6) -> str:
    """A number as short text, never less than the number.

    >>> rounded_up(0.1), rounded_up(1e-6), rounded_up(2.00000001), rounded_up(3.7101e-6, 3)
    ('0.1', '1e-06', '2.00001', '3.72e-06')
    """
    exact = Decimal(repr(float(value)))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(exact)):.{digits}g}"


def unit_text(records_per_unit: int) -> str:
    """The protected unit in words.

    >>> unit_text(1), unit_text(4)
    ('one record', 'all records of one person, up to 4')
    """
    if records_per_unit == 1:
        return "one record"
    return f"all records of one person, up to {records_per_unit}"


def guarantee_text(epsilon: float, delta: float) -> str:
    """The guarantee in one phrase, its numbers rounded up.

    >>> guarantee_text(1.0, 1e-6)
    '(1, 1e-06)-differential privacy'
    >>> guarantee_text(float("inf"), 1e-6)
    'NO PRIVACY (epsilon is infinite)'
    """
    if not math.isfinite(epsilon):
        return "NO PRIVACY (epsilon is infinite)"
    return f"({rounded_up(epsilon)}, {rounded_up(delta)})-differential privacy"


def replacement(epsilon: float, delta: float) -> tuple[float, float]:
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


def replacement_text(epsilon: float, delta: float) -> str:
    """What the guarantee means when one unit is replaced, rounded up; see `replacement`.

    >>> replacement_text(1.0, 1e-6)
    '(2, 3.72e-06)-differential privacy'
    """
    epsilon, delta = replacement(epsilon, delta)
    return f"({rounded_up(epsilon)}, {rounded_up(delta, 3)})-differential privacy"


# Making a report ------------------------------------------------------------------------------


def make_report(
    calibration: Calibration | HierarchyCalibration,
    inferred: Iterable[str],
    bits: SystemBits | SeededBits,
) -> PrivacyReport:
    """The report of one fit.

    Parameters
    ----------
    calibration : accounting.Calibration or accounting.HierarchyCalibration
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


def version() -> str:
    from lumberjack import __version__  # not yet there when this module is imported

    return __version__


def list_mechanisms(calibration: Calibration | HierarchyCalibration) -> Iterator[Mechanism]:
    """The mechanisms that a calibration describes, in order."""
    if isinstance(calibration, HierarchyCalibration):
        return _hierarchy_mechanisms(calibration)
    return _forest_mechanisms(calibration)


def _forest_mechanisms(calibration: Calibration) -> Iterator[Mechanism]:
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
    yield _tests_of(calibration)
    majority = calibration.leaf == "majority"
    noise = calibration.epsilon_leaf if majority else calibration.sigma_leaves
    yield Mechanism(
        part="leaves",
        name=CHOICE if majority else COUNTS,
        queries_per_unit=unit * calibration.n_estimators,
        noise=cast(float, noise),  # None is that of the other kind of leaves only
        share=shares["leaves"],
        mu=calibration.mu_leaves,
        rho=calibration.rho_leaves if majority else calibration.mu_leaves**2 / 2,
    )


def _hierarchy_mechanisms(calibration: HierarchyCalibration) -> Iterator[Mechanism]:
    yield _tests_of(calibration)
    if calibration.sigma_counts is not None:
        yield Mechanism(
            part="counts",
            name=COUNTS,
            queries_per_unit=calibration.records_per_unit,
            noise=calibration.sigma_counts,
            share=dict(calibration.budget_shares)["counts"],
            mu=calibration.mu_counts,
            rho=calibration.mu_counts**2 / 2,
        )


def _tests_of(calibration: Calibration | HierarchyCalibration) -> Mechanism:
    return Mechanism(
        part="structure",
        name=TESTS,
        queries_per_unit=calibration.records_per_unit * calibration.tests_per_record,
        noise=calibration.sigma_tests,
        share=dict(calibration.budget_shares)["structure"],
        mu=calibration.mu_structure,
        rho=calibration.mu_structure**2 / 2,
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

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier
    >>> model = LumberjackClassifier(epsilon=2, delta=1e-3, bounds=(0, 1), classes=[0, 1])
    >>> found = verify(model.fit([[0.25], [0.75]], [0, 1]).privacy_)
    >>> found.holds, found.problems
    (True, ())
    >>> found.claim
    '(2, 0.001)-differential privacy, add or remove one unit, unit: one record'
    """

    holds: bool
    delta: float
    problems: tuple[str, ...]
    claim: str

    def __str__(self) -> str:
        if self.holds:
            return f"holds: {self.claim}; delta recomputed {rounded_up(self.delta, 3)}"
        return f"DOES NOT HOLD: {self.claim}: " + "; ".join(self.problems)


def verify(report: PrivacyReport, *, n_features: int = 1, n_classes: int = 1) -> Verification:
    """Compute delta anew from the noise in a report and say whether its claim holds.

    Neither `delta_reached` nor any other result in the report is trusted: delta follows from the
    noise of each mechanism, in how many of its answers a unit is, the slack and the threshold, and
    every result that the report tells must agree with it.
    What cannot be checked is whether the fit did what the report says.

    Parameters
    ----------
    report : PrivacyReport
    n_features, n_classes : int, default=1
        Sizes of the domain of a forest, if known; the allowance for finite precision depends on
        them.

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
    problems: list[str] = []
    delta, claim = 1.0, "no claim"
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
    if not math.isclose(delta, report.delta_reached, rel_tol=ROUNDING):
        problems.append(f"delta reached is {rounded_up(delta, 3)}, not {report.delta_reached:.3g}")
    return Verification(not problems, delta, tuple(problems), claim)


def _problems_beside(report: PrivacyReport) -> Iterator[str]:
    """What takes the guarantee away whatever the noise is."""
    if not report.epsilon < math.inf:
        yield "no privacy, epsilon is infinite"
    if report.seeded or report.entropy != SYSTEM_ENTROPY:
        yield "the noise came from random_state: anyone who knows the seed can undo it"
    if report.inferred:
        yield "read from the data: " + ", ".join(report.inferred)
    if report.neighbouring != NEIGHBOURING:
        yield f"the neighbouring relation is not {NEIGHBOURING!r}"
    yield from report.contradictions


def _rebuild(report: PrivacyReport) -> Calibration | HierarchyCalibration:
    """The calibration that the mechanisms of a report tell."""
    if not all(0 < own.noise < math.inf for own in report.mechanisms):
        raise ValueError("noise must be positive and finite")
    calibration = report.calibration
    if isinstance(calibration, HierarchyCalibration):
        return _rebuild_hierarchy(report, calibration)
    mechanisms = _by_part(report, ("structure", "leaves"), "guide")
    tests, leaves = mechanisms["structure"], mechanisms["leaves"]
    guide = mechanisms.get("guide")
    if leaves.name not in (COUNTS, CHOICE):
        raise ValueError("the mechanism of the leaves is unknown")
    majority, unit = leaves.name == CHOICE, report.records_per_unit
    shares = _shares_of(guide, tests, leaves)
    return Calibration(
        epsilon=report.epsilon,
        delta=report.delta,
        accounting=report.accounting,
        leaf="majority" if majority else "counts",
        n_estimators=leaves.queries_per_unit // unit,
        max_depth=calibration.max_depth,
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


def _rebuild_hierarchy(
    report: PrivacyReport, calibration: HierarchyCalibration
) -> HierarchyCalibration:
    mechanisms = _by_part(report, ("structure",), "counts")
    tests, counts = mechanisms["structure"], mechanisms.get("counts")
    shares = _shares_of(tests, counts)
    return HierarchyCalibration(
        epsilon=report.epsilon,
        delta=report.delta,
        method=calibration.method,
        height=calibration.height,
        records_per_unit=report.records_per_unit,
        budget_shares=tuple(zip(("structure", "counts"), shares, strict=True)),
        tests_per_record=tests.queries_per_unit // report.records_per_unit,
        sigma_tests=tests.noise,
        slack=report.slack,
        threshold=report.threshold,
        sigma_counts=counts.noise if counts else None,
        precision_epsilon=report.finite_precision[0],
        precision_delta=report.finite_precision[1],
    )


def _by_part(report: PrivacyReport, needed: tuple[str, ...], optional: str) -> dict[str, Mechanism]:
    """The mechanisms of a report by part."""
    mechanisms = {own.part: own for own in report.mechanisms}
    if len(mechanisms) < len(report.mechanisms) or mechanisms.keys() - {optional} != set(needed):
        raise ValueError(f"{' and '.join(needed)} must be there, each once")
    return mechanisms


def _shares_of(*mechanisms: Mechanism | None) -> list[float]:
    shares = [own.share if own else 0.0 for own in mechanisms]
    if min(shares) < 0 or math.fsum(shares) > 1 + 1e-15:
        raise ValueError("the shares sum to more than 1")
    return shares


def _expected_tests(calibration: Calibration | HierarchyCalibration) -> int:
    if isinstance(calibration, HierarchyCalibration):
        return accounting.hierarchy_tests(calibration.method, calibration.height)
    return accounting.tests_per_record(calibration.n_estimators, calibration.max_depth)


def _contradictions(
    report: PrivacyReport, rebuilt: Calibration | HierarchyCalibration
) -> Iterator[str]:
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
    if report.accounting != rebuilt.accounting:
        yield "its accounting is not that of its calibration"
    if rebuilt.tests_per_record != _expected_tests(rebuilt):
        yield "the number of tests does not follow from its other numbers"
