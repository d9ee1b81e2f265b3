"""The guarantee of a fitted estimator, as data and as text."""

import math
from dataclasses import dataclass

from lumberjack import accounting

NEIGHBOURING = "add or remove one unit"


@dataclass(frozen=True)
class Mechanism:
    """One private mechanism of a fit.

    Attributes
    ----------
    part : str
        What it is for: "structure" or "leaves".
    name : str
        The mechanism: "thresholded Gaussian tests", "rounded Gaussian counts" or
        "exponential choice of a class".
    queries_per_unit : int
        In how many of its answers one unit takes part, at most.
    noise : float
        Standard deviation of the noise in records; for the exponential mechanism its epsilon per
        leaf.
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
        if self.name.startswith("exponential"):
            noise = f"epsilon {self.noise:.4g} a leaf"
        else:
            noise = f"noise {self.noise:.4g} records"
        return (
            f"{self.part} ({self.share:.0%}): {self.name}, {noise}, "
            f"a unit is in at most {self.queries_per_unit}"
        )


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

    @property
    def is_private(self):
        """Whether there is any guarantee: a finite epsilon and nothing beside the mechanism."""
        return math.isfinite(self.epsilon) and not self.seeded and not self.inferred

    @property
    def unit(self):
        """The protected unit in words."""
        if self.records_per_unit == 1:
            return "one record"
        return f"all records of one person, up to {self.records_per_unit}"

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


def guarantee_text(epsilon, delta):
    """The guarantee in one phrase.

    >>> guarantee_text(1.0, 1e-6)
    '(1, 1e-06)-differential privacy'
    >>> guarantee_text(float("inf"), 1e-6)
    'NO PRIVACY (epsilon is infinite)'
    """
    if not math.isfinite(epsilon):
        return "NO PRIVACY (epsilon is infinite)"
    return f"({epsilon:g}, {delta:g})-differential privacy"


def replacement_text(epsilon, delta):
    """What the guarantee means when one unit is replaced: one removal and one addition.

    Group privacy of two steps: (2 epsilon, (1 + e^epsilon) delta) (Dwork, Roth 2014, Theorem 2.2
    with the delta of Vadhan 2017, Lemma 2.2).

    >>> replacement_text(1.0, 1e-6)
    '(2, 3.72e-06)-differential privacy'
    """
    replaced = min(1.0, (1.0 + math.exp(min(epsilon, 700.0))) * delta)
    return f"({2 * epsilon:g}, {replaced:.3g})-differential privacy"


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
        entropy="random_state" if bits.seeded else "operating system",
        inferred=tuple(inferred),
        finite_precision=(calibration.precision_epsilon, calibration.precision_delta),
        calibration=calibration,
    )


def list_mechanisms(calibration):
    """Yield the mechanisms that a calibration describes."""
    shares = dict(calibration.budget_shares)
    yield Mechanism(
        part="structure",
        name="thresholded Gaussian tests",
        queries_per_unit=calibration.records_per_unit * calibration.tests_per_record,
        noise=calibration.sigma_tests,
        share=shares["structure"],
        mu=calibration.mu_structure,
        rho=calibration.mu_structure**2 / 2,
    )
    majority = calibration.leaf == "majority"
    yield Mechanism(
        part="leaves",
        name="exponential choice of a class" if majority else "rounded Gaussian counts",
        queries_per_unit=calibration.records_per_unit * calibration.n_estimators,
        noise=calibration.epsilon_leaf if majority else calibration.sigma_leaves,
        share=shares["leaves"],
        mu=calibration.mu_leaves,
        rho=calibration.rho_leaves,
    )
