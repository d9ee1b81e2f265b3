"""The ledger of several fits and scores on the same records.

`PrivacyLedger` bounds what any number of them reveal together: read its notes before choosing
parameters on private records. `make_private_scorer` makes scores that it can charge.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from lumberjack import accounting, noise
from lumberjack.privacy import NEIGHBOURING, PrivacyReport, guarantee_text, unit_text, version

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["LedgerEvent", "PrivacyBudgetError", "PrivacyLedger", "make_private_scorer"]

# What the parameter `ledger` of an estimator can be.
Ledgers: TypeAlias = (
    "PrivacyLedger | LedgerReference | Sequence[PrivacyLedger | LedgerReference] | None"
)
# Raises if an event must not join those that are there.
Allow: TypeAlias = "Callable[[LedgerEvent, Sequence[LedgerEvent]], None]"

LEDGER_FORMAT = 1

# How long to wait for another process that holds the lock; it does so for milliseconds.
LOCK_SECONDS = 60.0

EXACT_SCORE = (
    "score inside a ledger: an exact score of private records lies outside the guarantee, and so "
    "does every choice made by it; use make_private_scorer, or score public records outside"
)


class PrivacyBudgetError(ValueError):
    """A ledger refuses a query on the records."""


class Account(NamedTuple):
    """How an account is called and what helps when it runs out."""

    title: str
    remedy: str


ACCOUNTS = {
    "gaussian": Account(
        "Gaussian mechanisms (mu^2)",
        "use a smaller epsilon, or more noise for a score; ledger.share(n) says what n more fits "
        "can have",
    ),
    "tail": Account(
        "tail of the tests (log loss)",
        "use a smaller delta, or make the ledger with a larger tail_share; ledger.share(n) says "
        "what n more fits can have",
    ),
    "exponential": Account(
        "exponential mechanisms (rho)",
        'use leaf="counts" or a smaller epsilon, or make the ledger with a larger '
        "exponential_share",
    ),
    "precision_epsilon": Account(
        "finite precision (epsilon)", "use fewer or smaller forests, or a larger epsilon"
    ),
    "precision_variation": Account(
        "finite precision (total variation)",
        "use fewer or smaller forests, or make the ledger with a larger delta or a smaller epsilon",
    ),
}


@dataclass(frozen=True)
class LedgerEvent:
    """One query that a ledger recorded.

    Attributes
    ----------
    kind : str
        "fit", "private score" or "exact score".
    source : str
        Class of the estimator, or metric of the score.
    epsilon, delta : float or None
        What a fit was calibrated for.
    charged : accounting.Spending
        What was taken from each account; nothing for an exact score.
    seeded : bool
        The noise came from `random_state`.
    inferred : tuple of str
        What the fit read from the data outside the guarantee.

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier, PrivacyLedger
    >>> model = LumberjackClassifier(epsilon=1, delta=1e-7, bounds=(0, 1), classes=[0, 1])
    >>> with PrivacyLedger(2, 1e-6) as ledger:
    ...     model = model.fit([[0.25], [0.75]], [0, 1])
    >>> event = ledger.events[0]
    >>> event.kind, event.source, event.epsilon, event.is_private
    ('fit', 'LumberjackClassifier', 1.0, True)
    >>> event.charged == ledger.spent
    True
    """

    kind: str
    source: str
    epsilon: float | None
    delta: float | None
    charged: accounting.Spending
    seeded: bool = False
    inferred: tuple[str, ...] = ()

    @property
    def is_private(self) -> bool:
        """Whether the guarantee of the ledger covers it."""
        return self.kind != "exact score" and not self.seeded and not self.inferred


class PrivacyLedger:
    """Accounts that any number of fits and scores on the same records are charged to.

    What all of them reveal together, chosen one after another from the results of the earlier
    ones, is (epsilon, delta)-differentially private under adding or removing one unit. A query
    that would overdraw an account is refused before it reads a record. Nothing is ever given back.

    Used as a context, every fit in the process is charged until it ends, those of other threads
    included; or a ledger is passed to estimators and scorers as ``ledger``.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for everything together; epsilon is finite.
    tail_share : float, default=0.5
        Share of delta for the tail of the tests, between 0 and 1. A forest spends about 40 % of
        its delta on it.
    exponential_share : float, default=0.0
        Share of zCDP for exponential mechanisms (``leaf="majority"``), 0 <= share < 1. Above 0,
        Gaussian mechanisms are accounted for by zCDP, too, which costs about 10 %.
    records_per_unit : int, default=1
        Up to how many records belong to one protected unit. A fit for smaller units is refused.
    path : str or path-like, default=None
        File that holds the accounts: for several processes, such as the workers of joblib, or for
        several days. A file that is there is continued, if it has the same parameters. Beside it
        lies a lock file. Without it, the ledger lives in this process and cannot be pickled.

    Attributes
    ----------
    limits, spent, remaining : accounting.Spending
        What each account holds, has given and has left.
    events : tuple of LedgerEvent
        Every query, in order.

    Notes
    -----
    A fit is calibrated for its own epsilon and delta; charged is the noise that this gives. A
    ledger has one account each for mu^2 of Gaussian mechanisms, for the tail of the tests, for
    rho of exponential mechanisms and for finite precision, fixed when it is made; what is left of
    one is never turned into another. That is what makes it sound for an analyst who chooses each
    fit after seeing the last; note 6 in ``accounting.py`` has the proof, and why adding up and
    checking one delta would not do.

    *What a ledger cannot see.* Exact scores: ``estimator.score`` inside a ledger is recorded as
    outside the guarantee and warned of, but scorers of scikit-learn such as ``"roc_auc"`` and
    ``"accuracy"`` call ``predict`` or ``predict_proba``, as does your own code, and what they are
    used for stays unknown. **A model chosen by exact scores of private records
    (``GridSearchCV.best_params_``, early stopping by hand) is not private, whatever the ledger
    says**; use `make_private_scorer`. Nor does it see models of other libraries, or estimators
    that are made in worker processes: pass a ledger with a `path` to those.

    *Cross-validation.* The accounts count queries on the records. That covers a split only if it
    assigns every record by itself. `KFold`, `StratifiedKFold`, `train_test_split` and
    bootstrapping assign by position and number: one record more moves others to another fold. Let
    each record draw its own fold instead::

        folds = np.random.default_rng().integers(5, size=len(y))
        cross_val_score(model, X, y, cv=PredefinedSplit(folds), scoring=scorer)

    A record in several folds or fits is charged once for each. With ``error_score="raise"``
    scikit-learn shows a refusal as the error that it is, not as a score of NaN.

    Of a file there must be one: whoever copies it or restores an older one spends twice.

    Examples
    --------
    >>> from lumberjack import LumberjackClassifier, PrivacyLedger
    >>> X, y = [[0.25], [0.75]], [0, 1]
    >>> with PrivacyLedger(2, 1e-6) as ledger:
    ...     epsilon, delta = ledger.share(2)
    ...     model = LumberjackClassifier(
    ...         epsilon=epsilon, delta=delta, bounds=(0, 1), classes=[0, 1]
    ...     )
    ...     for _ in range(3):
    ...         model.fit(X, y)
    Traceback (most recent call last):
    ...
    lumberjack.ledger.PrivacyBudgetError: the ledger refuses this fit: ...
    >>> len(ledger.events)
    2
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        tail_share: float = 0.5,
        exponential_share: float = 0.0,
        records_per_unit: int = 1,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        limits = accounting.account_limits(
            epsilon, delta, tail_share=tail_share, exponential_share=exponential_share
        )
        if isinstance(records_per_unit, bool) or not isinstance(records_per_unit, int | np.integer):
            raise TypeError("records_per_unit must be an integer of at least 1")
        if records_per_unit < 1:
            raise ValueError("records_per_unit must be at least 1")
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        self.tail_share = float(tail_share)
        self.exponential_share = float(exponential_share)
        self.records_per_unit = int(records_per_unit)
        self._store: MemoryStore | FileStore
        self.path: str | None
        if path is None:
            self._store, self.path, self.limits = MemoryStore(), None, limits
        else:
            self._store = file = FileStore(path, self._terms(), limits)
            self.path, self.limits = file.path, file.limits
        self.id = self._store.id
        with _lock:
            _living[self.id] = self

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PrivacyLedger:
        """The ledger that lies in a file.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        PrivacyLedger
        """
        return cls(**read_ledger_file(ledger_path(path))["terms"], path=path)

    def _terms(self) -> dict[str, Any]:
        names = ("epsilon", "delta", "tail_share", "exponential_share", "records_per_unit")
        return {name: getattr(self, name) for name in names}

    @property
    def events(self) -> tuple[LedgerEvent, ...]:
        """Every query that was recorded, a tuple of `LedgerEvent`."""
        return tuple(self._store.read())

    @property
    def spent(self) -> accounting.Spending:
        """What was taken from each account, rounded up; `accounting.Spending`."""
        total = sum_exactly(self._store.read())
        return accounting.Spending(*(_float_above(value) for value in total))

    @property
    def remaining(self) -> accounting.Spending:
        """What is left of each account, rounded down; `accounting.Spending`."""
        total = sum_exactly(self._store.read())
        return accounting.Spending(
            *(
                _float_below(Fraction(limit) - value)
                for limit, value in zip(self.limits, total, strict=True)
            )
        )

    @property
    def is_private(self) -> bool:
        """Whether everything that was recorded is covered by the guarantee."""
        return all(event.is_private for event in self.events)

    def share(self, n_fits: int = 1) -> tuple[float, float]:
        """(epsilon, delta) that each of so many more equal fits can have.

        For forests with ``leaf="counts", accounting="joint"`` and for hierarchies; their
        calibration never spends more than an equal part of what is left of mu^2 and of the tail.

        Parameters
        ----------
        n_fits : int, default=1

        Returns
        -------
        epsilon, delta : float

        Raises
        ------
        PrivacyBudgetError
            Nothing is left.

        Examples
        --------
        >>> epsilon, delta = PrivacyLedger(2, 1e-6).share(10)
        >>> round(epsilon, 2), f"{delta:.2e}"
        (0.65, '4.95e-08')
        """
        if isinstance(n_fits, bool) or not isinstance(n_fits, Integral) or not 0 < n_fits < 2**53:
            raise ValueError("n_fits must be a whole number of at least 1")
        left = self.remaining
        if left.gaussian == 0 or left.tail == 0:
            raise PrivacyBudgetError("nothing is left for fits in this ledger")
        down = 1 - 1e-12
        # A calibration has mu <= gaussian_mu(epsilon, delta) and a tail of less than its delta.
        delta = -math.expm1(-left.tail / n_fits) * down
        mu = math.sqrt(left.gaussian / n_fits) * down
        return _epsilon_of(mu, delta), delta

    def charge(self, event: LedgerEvent, check_only: bool = False) -> None:
        """Take what an event needs from the accounts and record it, or refuse it.

        Parameters
        ----------
        event : LedgerEvent
        check_only : bool, default=False
            Refuse it if need be, but record nothing.

        Raises
        ------
        PrivacyBudgetError
        """
        if check_only:
            self._allow(event, self._store.read())
        else:
            self._store.append(event, self._allow)

    def _allow(self, event: LedgerEvent, events: Sequence[LedgerEvent]) -> None:
        """Refuse an event that would overdraw an account, in exact arithmetic."""
        for name, limit, spent, needed in zip(
            ACCOUNTS, self.limits, sum_exactly(events), event.charged, strict=True
        ):
            if math.isfinite(needed) and spent + Fraction(needed) <= Fraction(limit):
                continue
            left = _float_below(Fraction(limit) - spent)
            title, remedy = ACCOUNTS[name]
            raise PrivacyBudgetError(
                f"the ledger refuses this {event.kind}: of its account for {title}, {left:.4g} is "
                f"left of {limit:.4g}, and {needed:.4g} is needed; {remedy}"
            )

    def __enter__(self) -> PrivacyLedger:
        with _lock:
            _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        with _lock:
            last = max(i for i, ledger in enumerate(_active) if ledger is self)
            del _active[last]

    def __copy__(self) -> PrivacyLedger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyLedger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError(
                "this ledger lives in one process and cannot be pickled, a copy would spend the "
                "budget again; give it path=FILE to use it in other processes (n_jobs), or stay "
                "in this one with threads: joblib.parallel_backend('threading')"
            )
        return PrivacyLedger.open, (self.path,)

    def __repr__(self) -> str:
        return f"PrivacyLedger(epsilon={self.epsilon:g}, delta={self.delta:g})"

    def __str__(self) -> str:
        events, spent = self.events, self.spent
        lines = [f"ledger of {guarantee_text(self.epsilon, self.delta)}, {NEIGHBOURING}"]
        lines.append(f"unit: {unit_text(self.records_per_unit)}")
        for (title, _), limit, used in zip(ACCOUNTS.values(), self.limits, spent, strict=True):
            if limit > 0:
                lines.append(f"{title}: {used:.4g} of {limit:.4g} spent ({used / limit:.1%})")
        kinds = ("fit", "private score")
        counts = [sum(event.kind == kind for event in events) for kind in kinds]
        lines.append(f"charged: {counts[0]} fits, {counts[1]} private scores")
        outside = _outside(events)
        if outside:
            lines.append("OUTSIDE THE GUARANTEE: " + ", ".join(outside))
        return "\n".join(lines)


def _outside(events: Iterable[LedgerEvent]) -> list[str]:
    """What the guarantee of a ledger does not cover, in words."""
    counts = {
        "exact scores": sum(event.kind == "exact score" for event in events),
        "fits with random_state": sum(event.seeded for event in events),
        "fits that read their domain from the data": sum(bool(own.inferred) for own in events),
    }
    return [f"{count} {what}" for what, count in counts.items() if count]


def _epsilon_of(mu: float, delta: float) -> float:
    """Largest epsilon, rounded down, whose `accounting.gaussian_mu` is at most mu."""
    low, high = 0.0, 1.0
    while accounting.gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if accounting.gaussian_delta(middle, mu) >= delta:
            low = middle
        else:
            high = middle
    if low == 0:
        raise PrivacyBudgetError("too little is left for fits in this ledger")
    return low * (1 - 1e-9)


def sum_exactly(events: Sequence[LedgerEvent]) -> list[Fraction]:
    """What events were charged, account by account, as exact fractions."""
    return [
        sum((Fraction(event.charged[i]) for event in events), Fraction(0))
        for i in range(len(ACCOUNTS))
    ]


def _float_above(value: Fraction) -> float:
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


def _float_below(value: Fraction) -> float:
    found = float(value)
    return found if Fraction(found) <= value else math.nextafter(found, -math.inf)


# Where a ledger keeps its events ----------------------------------------------------------------


class MemoryStore:
    """Events in memory; of this process only, because a fork would copy them."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(16)
        self._events: list[LedgerEvent] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def read(self) -> tuple[LedgerEvent, ...]:
        """Events so far."""
        return tuple(self._events)

    def append(self, event: LedgerEvent, allow: Allow) -> None:
        """Record an event, unless `allow` raises."""
        if os.getpid() != self._process:  # before the lock, which a fork may have copied locked
            raise PrivacyBudgetError(
                "this ledger lives in another process, of which this one is a fork: give it "
                "path=FILE to use it in several"
            )
        with self._lock:
            allow(event, self._events)
            self._events.append(event)


class FileStore:
    """Events in a JSON file, which is replaced as a whole while its lock file is held."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        terms: dict[str, Any],
        limits: accounting.Spending,
    ) -> None:
        if fcntl is None:
            raise NotImplementedError("a ledger with a path needs the file locks of POSIX")
        self.path = ledger_path(path)
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise ValueError(f"path lies in the folder {folder}, which is not there: make it first")
        with locked(self.path):
            if os.path.exists(self.path):
                content = read_ledger_file(self.path)
                if content["terms"] != terms:
                    raise ValueError(
                        f"{self.path} holds a ledger with other parameters; continue it with "
                        "PrivacyLedger.open(path), or take another path"
                    )
            else:
                content = {
                    "format": LEDGER_FORMAT,
                    "lumberjack": version(),
                    "id": secrets.token_hex(16),
                    "terms": terms,
                    "limits": limits._asdict(),
                    "events": [],
                }
                write_ledger_file(self.path, content)
        self.id = content["id"]
        self.limits = accounting.Spending(**content["limits"])

    def _load(self) -> dict[str, Any]:
        content = read_ledger_file(self.path)
        if content["id"] != self.id:
            raise PrivacyBudgetError(f"{self.path} has been replaced by another ledger")
        return content

    def read(self) -> list[LedgerEvent]:
        """Events so far."""
        return [_read_event(own) for own in self._load()["events"]]

    def append(self, event: LedgerEvent, allow: Allow) -> None:
        """Record an event, unless `allow` raises."""
        with locked(self.path):
            content = self._load()
            allow(event, [_read_event(own) for own in content["events"]])
            own = {**vars(event), "charged": event.charged._asdict()}
            content["events"].append(own)
            write_ledger_file(self.path, content)


def ledger_path(path: str | os.PathLike[str]) -> str:
    """Absolute path of a ledger file.

    Raises
    ------
    TypeError, ValueError
        It is not the name of a file.
    """
    if isinstance(path, bool | bytes) or not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the name of a file, got {type(path).__name__}")
    if not os.fspath(path):
        raise ValueError("path must be the name of a file, got an empty one")
    found = os.path.abspath(path)
    if os.path.isdir(found):
        raise ValueError(f"path must be the name of a file, but {found} is a folder")
    return found


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file of a ledger file.

    The lock is that of the operating system (flock), which ends with the process that holds it,
    however that ends: no lock is ever stale. The lock file itself stays.
    """
    name = f"{path}.lock"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{name} has been locked by another process for {LOCK_SECONDS:g} seconds; "
                    "find out which one, it may be suspended"
                )
            time.sleep(0.005)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing would not do: a fork may hold it open, too
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_ledger_file(path: str) -> dict[str, Any]:
    """Content of a ledger file, checked.

    Raises
    ------
    PrivacyBudgetError
        It is not there, damaged, or its limits are more than its guarantee allows.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        terms = dict(content["terms"])
        limits = accounting.Spending(**content["limits"])
        events = [_read_event(own) for own in content["events"]]
        sound = (
            content["format"] == LEDGER_FORMAT
            and isinstance(content["id"], str)
            and accounting.accounts_delta(terms["epsilon"], limits) <= terms["delta"]
            and all(0 <= value < math.inf for event in events for value in event.charged)
        )
    except FileNotFoundError:
        raise PrivacyBudgetError(
            f"{path} is not there: a ledger whose file was removed or moved cannot go on"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        sound = False
    if not sound:
        raise PrivacyBudgetError(f"{path} is not a ledger, or it is damaged")
    return content


def write_ledger_file(path: str, content: dict[str, Any]) -> None:
    """Replace a ledger file as a whole; a crash leaves the old one or the new one."""
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_event(data: dict[str, Any]) -> LedgerEvent:
    charged = accounting.Spending(**data["charged"])
    return LedgerEvent(**{**data, "charged": charged, "inferred": tuple(data["inferred"])})


# Active ledgers ---------------------------------------------------------------------------------

# Of the whole process, not of one thread or context: the threads of joblib are charged, too.
_active: list[PrivacyLedger] = []
_living: weakref.WeakValueDictionary[str, PrivacyLedger] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it during the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True)
class LedgerReference:
    """What stands for a ledger in the pickle of a fitted estimator."""

    id: str
    path: str | None

    def find_living(self) -> PrivacyLedger | None:
        """The ledger if it lives in this process, or None."""
        with _lock:
            return _living.get(self.id)

    def find(self) -> PrivacyLedger | None:
        """The ledger, opened if need be, or None."""
        found = self.find_living()
        if found is None and self.path is not None and os.path.exists(self.path):
            found = PrivacyLedger.open(self.path)
        return found if found is not None and found.id == self.id else None

    def __copy__(self) -> PrivacyLedger | LedgerReference:
        return self.find_living() or self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyLedger | LedgerReference:
        return self.find_living() or self


def find_ledgers(ledger: Ledgers, required: bool = True) -> list[PrivacyLedger]:
    """Ledgers that a query is charged to: the one given and all active ones, each once.

    Parameters
    ----------
    ledger : PrivacyLedger, LedgerReference, tuple or list of them, or None
    required : bool, default=True
        Whether a reference to a ledger that is not at hand is an error.

    Returns
    -------
    list of PrivacyLedger
    """
    with _lock:
        active = list(_active)
    found = {}
    for own in [*_given(ledger), *active]:
        known = own.find() if isinstance(own, LedgerReference) else own
        if known is not None:
            found[known.id] = known
        elif required:
            raise PrivacyBudgetError(
                "this estimator was pickled within a ledger that is not at hand here; "
                "set_params(ledger=None) makes it forget it, to fit other records"
            )
    return list(found.values())


def _given(ledger: Ledgers) -> tuple[PrivacyLedger | LedgerReference, ...]:
    if ledger is None:
        return ()
    given = tuple(ledger) if isinstance(ledger, tuple | list) else (ledger,)
    if not all(isinstance(own, PrivacyLedger | LedgerReference) for own in given):
        raise TypeError("ledger must be a PrivacyLedger, a tuple of them, or None")
    return given


def charge(ledgers: Sequence[PrivacyLedger], event: LedgerEvent) -> None:
    """Charge an event to several ledgers; none is charged if one is seen to refuse."""
    if len(ledgers) > 1:
        for ledger in ledgers:
            ledger.charge(event, check_only=True)
    for ledger in ledgers:
        ledger.charge(event)


def charge_fit(ledger: Ledgers, report: PrivacyReport, source: str) -> None:
    """Charge a fit to the given and to all active ledgers, before it reads the records.

    Parameters
    ----------
    ledger : PrivacyLedger, tuple of them or None
        Parameter of the estimator.
    report : PrivacyReport
        Of the fit to come.
    source : str
        Class of the estimator.

    Raises
    ------
    PrivacyBudgetError
        A ledger refuses: the fit would overdraw an account, has no noise, or protects smaller
        units than the ledger.
    """
    ledgers = find_ledgers(ledger)
    if not ledgers:
        return
    if not math.isfinite(report.epsilon):
        raise PrivacyBudgetError(
            "the ledger refuses this fit: with an infinite epsilon there is no noise; use a "
            "finite one, or fit outside the ledger"
        )
    unit = max(own.records_per_unit for own in ledgers)
    if report.records_per_unit < unit:
        raise PrivacyBudgetError(
            f"the ledger refuses this fit: it protects units of {unit} records; use "
            f"records_per_unit={unit}"
        )
    event = LedgerEvent(
        kind="fit",
        source=source,
        epsilon=report.epsilon,
        delta=report.delta,
        charged=accounting.spending(report.calibration),
        seeded=report.seeded,
        inferred=report.inferred,
    )
    charge(ledgers, event)


def record_exact_score(ledger: Ledgers, source: str) -> bool:
    """Record an exact score in the given and in all active ledgers; whether there is any."""
    ledgers = find_ledgers(ledger, required=False)
    event = LedgerEvent("exact score", source, None, None, accounting.Spending())
    charge(ledgers, event)
    return bool(ledgers)


def ledger_to_pickle(ledger: Ledgers, fitted: bool) -> Ledgers:
    """What an estimator pickles as its parameter `ledger`.

    The active ledgers join the one given, so that a fit in another process is charged, too. One
    without a file refuses to be pickled. An estimator that is fitted may be published: it takes
    references, and only a new fit asks for the ledgers.
    """
    with _lock:
        active = list(_active)
    found = list({own.id: own for own in [*_given(ledger), *active]}.values())
    if not active and not fitted:
        return ledger
    if fitted:
        found = [LedgerReference(own.id, own.path) for own in found]
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def ledger_from_pickle(ledger: Ledgers) -> Ledgers:
    """The parameter `ledger` from a pickle, in the process of the ledger the ledger itself.

    No file is opened here: a model that was published shall load anywhere.
    """
    if isinstance(ledger, tuple | list):
        return tuple(copy.copy(own) for own in ledger)
    return copy.copy(ledger)


FORMAT_VERSION = 1  # of the pickles of estimators


class LedgerPickling:
    """Mixin of estimators with a parameter `ledger`: how they are pickled and copied.

    Their pickles carry a format version, and one that this version does not know is refused.
    """

    ledger: Ledgers

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()  # type: ignore[misc]  # of the estimator
        charged = ledger_to_pickle(self.ledger, fitted=hasattr(self, "privacy_"))
        return {**state, "ledger": charged, "format_version": FORMAT_VERSION}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        found = state.pop("format_version", None)
        if found != FORMAT_VERSION:
            raise ValueError(
                f"this pickle has format version {found}, but lumberjack {version()} reads "
                f"version {FORMAT_VERSION}; load it with the version of lumberjack that wrote it"
            )
        charged = ledger_from_pickle(state.get("ledger"))
        super().__setstate__({**state, "ledger": charged})  # type: ignore[misc]


# Private scores ---------------------------------------------------------------------------------


def make_private_scorer(
    metric: str = "accuracy",
    *,
    noise: float | None = None,
    mu: float | None = None,
    bins: int = 20,
    ledger: Ledgers = None,
) -> PrivateScorer:
    """Make a scorer that releases noisy counts and charges the ledger.

    For `cross_val_score`, `GridSearchCV` and the like, inside ``with PrivacyLedger(...)`` or with
    a ledger of its own. Each call draws fresh noise from the operating system.

    Parameters
    ----------
    metric : {"accuracy", "roc_auc"}, default="accuracy"
        Accuracy from two counts, right and wrong, or the area under the ROC curve (two classes)
        from a histogram of the probability by class.
    noise : float, default=None
        Standard deviation of the noise of each count, in records.
    mu : float, default=None
        The same as Gaussian differential privacy, records_per_unit / noise: each call takes mu^2
        from the ledger. Either this or `noise` is given.
    bins : int, default=20
        Bins of the histogram for "roc_auc".
    ledger : PrivacyLedger or tuple of them, default=None
        Charged beside all active ones.

    Returns
    -------
    PrivateScorer
        Call it as ``scorer(estimator, X, y)``. If the noise leaves nothing to go by, it is 0.5.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier, PrivacyLedger, make_private_scorer
    >>> X = np.linspace(0, 1, 2000)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> model = LumberjackClassifier(
    ...     10, epsilon=2, delta=1e-7, max_depth=15, bounds=(0, 1), classes=[0, 1]
    ... )
    >>> scorer = make_private_scorer(noise=20.0)
    >>> with PrivacyLedger(4, 1e-6) as ledger:
    ...     print(0.6 < scorer(model.fit(X, y), X, y) <= 1)
    True
    >>> [event.kind for event in ledger.events]
    ['fit', 'private score']
    """
    return PrivateScorer(metric, noise, mu, bins, ledger)


class PrivateScorer:
    """A scorer with noise; see `make_private_scorer`.

    Notes
    -----
    Every record adds 1 to one cell of a histogram, which cell depends on that record and on the
    fitted model alone: the l2 sensitivity is 1 for one record and g for a unit of g. The noise is
    `noise.rounded_gaussian`, whose guarantee is that of the Gaussian mechanism; the score is
    post-processing of the noisy counts. This protects the records that are scored. Those that the
    model was fitted to are protected by the noise of the fit.
    """

    def __init__(
        self, metric: str, noise: float | None, mu: float | None, bins: int, ledger: Ledgers
    ) -> None:
        if metric not in METRICS:
            raise ValueError(f"metric must be 'accuracy' or 'roc_auc', got {metric!r}")
        if (noise is None) == (mu is None):
            raise ValueError(
                "give either noise, in records, or mu: noise=10 hides a record in counts that are "
                "off by about 10 each"
            )
        value: Any
        name, value = ("noise", noise) if mu is None else ("mu", mu)
        is_real = isinstance(value, Real) and not isinstance(value, bool)
        if not is_real or not 0 < value < 2**32:
            raise ValueError(f"{name} must be a number between 0 and 2^32, got {value!r}")
        if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 2:
            raise ValueError(f"bins must be an integer of at least 2, got {bins!r}")
        _given(ledger)
        self.metric, self.noise, self.mu, self.bins = metric, noise, mu, int(bins)
        self.ledger = ledger

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score an estimator on private records.

        Parameters
        ----------
        estimator : fitted classifier
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        float
        """
        ledgers = find_ledgers(self.ledger)
        if not ledgers:
            raise PrivacyBudgetError(
                "a private score needs a ledger to be charged to: call it within "
                "PrivacyLedger(...), or pass ledger="
            )
        count, score = METRICS[self.metric]
        if self.metric == "roc_auc" and len(estimator.classes_) != 2:
            raise ValueError("roc_auc needs two classes; use the accuracy")
        unit = max(own.records_per_unit for own in ledgers)
        sigma = float(cast(float, self.noise)) if self.mu is None else unit / float(self.mu)
        charge(ledgers, LedgerEvent("private score", self.metric, None, None, _cost(unit, sigma)))
        counts = count(estimator, X, y, self.bins)
        words = noise.SystemBits().draw("private score", range(len(counts)), counts[0].size)
        return score(np.maximum(counts + noise.rounded_gaussian(words, sigma), 0))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "ledger": ledger_to_pickle(self.ledger, fitted=False)}

    def __repr__(self) -> str:
        amount = f"noise={self.noise!r}" if self.mu is None else f"mu={self.mu!r}"
        return f"make_private_scorer({self.metric!r}, {amount})"


def _cost(unit: int, sigma: float) -> accounting.Spending:
    """What one noisy histogram spends, rounded up.

    A unit changes at most `unit` cells; the draw for each is off by (9.2 sigma + 1) 2^-64 in total
    variation at most (notes of `noise.rounded_gaussian`).
    """
    return accounting.Spending(
        gaussian=(unit / sigma) ** 2 * (1 + 1e-14),
        precision_variation=unit * (9.2 * sigma + 1) * 2.0**-64 * (1 + 1e-14),
    )


def _labels(y: Any, n_records: int) -> np.ndarray:
    """Labels as one row; each record must count once, no more."""
    labels = np.asarray(y).reshape(-1)
    if len(labels) != n_records:
        raise ValueError("X and y must have the same number of rows")
    return labels


def count_right_and_wrong(estimator: Any, X: Any, y: Any, bins: int) -> np.ndarray:
    """How many predictions are wrong and right: shape (1, 2)."""
    predicted = np.asarray(estimator.predict(X))
    right = np.asarray(predicted == _labels(y, len(predicted)), dtype=bool)
    return np.bincount(right.astype(np.int64), minlength=2)[None, :]


def accuracy_of(counts: np.ndarray) -> float:
    """Accuracy from counts of wrong and right predictions."""
    wrong, right = counts[0]
    return float(right / (wrong + right)) if wrong + right > 0 else 0.5


def count_by_probability(estimator: Any, X: Any, y: Any, bins: int) -> np.ndarray:
    """Histogram of the probability of the second class, by class: shape (2, bins)."""
    probability = np.asarray(estimator.predict_proba(X), dtype=np.float64)[:, 1]
    cells = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
    positive = np.asarray(_labels(y, len(cells)) == estimator.classes_[1], dtype=bool)
    return np.stack([np.bincount(cells[own], minlength=bins) for own in (~positive, positive)])


def area_of(counts: np.ndarray) -> float:
    """Area under the ROC curve from a histogram by class; ties within a bin count half.

    >>> area_of(np.array([[2, 1, 0], [0, 1, 2]]))
    0.9444444444444444
    """
    negative, positive = counts.astype(np.float64)
    pairs = negative.sum() * positive.sum()
    if pairs == 0:
        return 0.5
    below = np.cumsum(negative) - 0.5 * negative
    return float(positive @ below / pairs)


METRICS: dict[str, tuple[Callable[..., np.ndarray], Callable[[np.ndarray], float]]] = {
    "accuracy": (count_right_and_wrong, accuracy_of),
    "roc_auc": (count_by_probability, area_of),
}
