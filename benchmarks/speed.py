"""Speed and memory of private forests beside those of other libraries.

    python benchmarks/speed.py
    python benchmarks/speed.py --only fit-adult lazy one-row --peers sklearn
    python benchmarks/speed.py --only fit-made-1e5 fit-made-1e6 fit-made-1e7 --repeats 5

Prints one table and writes one JSON file (`--json`) with every single time. All runs of a case
alternate, after one warm-up each; a ratio is that of the medians of the wall times, with that of
the processor times beside it, which says more on a busy machine. Everything but 10^7 records
(`fit-made-1e7`, `memory`: half an hour) takes about ten minutes on two cores.

Peers (`--peers`) are named with their versions, and one that cannot be imported is reported as
missing. They get the same prepared arrays: categories one-hot for scikit-learn, as numbers for the
private ones, which makes those faster and more accurate. A peer that does not work with the
scikit-learn at hand runs in an environment of its own; for diffprivlib:

    python -m venv dpl && dpl/bin/pip install diffprivlib 'scikit-learn<1.9'
    python benchmarks/speed.py --peers sklearn,diffprivlib --diffprivlib-python dpl/bin/python

and likewise `--interpret-python` for interpret (`pip install interpret-core`).

The data of `lumberjack.datasets` are found through LUMBERJACK_DATA. The processor time of the
paper's authors' program (70 to 95 s for 30 trees on Adult at epsilon 1) is quoted, not measured.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

N_TREES = 30
EPSILON = 1.0
DELTA = 1e-6
N_JOBS = 2
AUTHORS_SECONDS = 70.0

# What a forest of random splits is in the paper, and what the library does by default.
SETTINGS = {
    "random": {"splitter": "random", "max_depth": 100},
    "default": {},
}


class Table:
    """The table of results, printed as it grows."""

    def __init__(self):
        self.rows = []
        print(f"{'case':<14}{'what':<44}{'ours':>11}{'other':>11}{'ratio':>9}{'cpu':>9}  goal")

    def add(self, case, what, ours, other=None, goal=None, unit="s", cpu=None, times=None):
        """Add a row; `goal` is a pair (">=" or "<=", number) for the ratio, or `ours` alone."""
        ratio = None if other is None else other / ours
        judged = ours if ratio is None else ratio
        met = goal and bool(judged >= goal[1] if goal[0] == ">=" else judged <= goal[1])
        self.rows.append(
            {
                "case": case, "what": what, "ours": ours, "other": other, "unit": unit,
                "ratio": ratio, "cpu_ratio": cpu, "goal": goal, "met": met, "times": times,
            }
        )  # fmt: skip
        verdict = "" if goal is None else f"{goal[0]} {goal[1]:g} {'met' if met else 'NOT MET'}"
        print(
            f"{case:<14}{what:<44}{_number(ours, unit):>11}{_number(other, unit):>11}"
            f"{_number(ratio, 'x'):>9}{_number(cpu, 'x'):>9}  {verdict}",
            flush=True,
        )

    def compare(self, case, what, times, ours, other, goal=None):
        """Add the ratio of the medians of two kinds of runs; above 1, ours is the faster."""
        if times.get(other) is None:
            self.missing(case, other)
            return
        wall = {name: np.median([t[0] for t in times[name]]) for name in (ours, other)}
        cpu = {name: np.median([t[1] for t in times[name]]) for name in (ours, other)}
        self.add(
            case, what, wall[ours], wall[other], goal,
            cpu=cpu[other] / cpu[ours],
            times={name: times[name] for name in (ours, other)},
        )  # fmt: skip

    def missing(self, case, peer):
        """Say that a peer could not be run."""
        self.rows.append({"case": case, "what": peer, "missing": True})
        print(f"{case:<14}{peer}: missing", flush=True)


def _number(value, unit):
    return "" if value is None else f"{value:.4g} {unit}"


# Timing -----------------------------------------------------------------------------------------


def timed(function):
    """Wall and processor seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def alternate(runs, repeats):
    """Run all in turn, `repeats` times after a warm-up.

    Parameters
    ----------
    runs : dict
        From name to a function that returns (wall, processor) seconds, or None if it cannot run.
    repeats : int

    Returns
    -------
    dict
        From name to the list of its times, or None.
    """
    times = {name: None if run is None else [] for name, run in runs.items()}
    for number in range(repeats + 1):
        for name, run in runs.items():
            if run is not None:
                seconds = run()
                if number:
                    times[name].append(seconds)
    return times


# Data -------------------------------------------------------------------------------------------


def real_table(name):
    """A table of `lumberjack.datasets`: as it is, and as a prepared array of codes."""
    from lumberjack import datasets

    load = {
        "adult": datasets.load_adult,
        "acs": datasets.load_acs_income,
        "flights": datasets.load_flights,
    }[name]
    table = load()
    X = np.empty(table.X.shape, dtype=np.float32)
    bounds, categories = {}, {}
    for j, column in enumerate(table.X.columns):
        if column in table.bounds:
            X[:, j] = table.X[column]
            bounds[j] = table.bounds[column]
        else:
            codes = table.X[column].cat.codes.to_numpy()
            X[:, j] = np.where(codes < 0, np.nan, codes)
            categories[j] = list(range(len(table.categories[column])))
    y = np.searchsorted(table.classes, table.y)
    return table, X, y, {"bounds": bounds, "categories": categories, "classes": [0, 1]}


def made_table(n_records, seed=0):
    """Made data: 10 numeric and 10 categorical columns, float32."""
    rng = np.random.default_rng(seed)
    X = np.empty((n_records, 20), dtype=np.float32)
    rng.random(out=(numbers := np.empty((n_records, 10), dtype=np.float32)), dtype=np.float32)
    X[:, :10] = numbers
    X[:, 10:] = rng.integers(0, 10, (n_records, 10), dtype=np.int8)
    score = X[:, 0] + X[:, 1] * X[:, 2] + (X[:, 10] == 3) + 0.5 * (X[:, 11] < 4)
    y = (score + rng.normal(0, 0.5, n_records) > 1.2).astype(np.int64)
    return X, y, made_declaration()


def made_declaration():
    """The domain of the made data."""
    return {
        "bounds": dict.fromkeys(range(10), (0.0, 1.0)),
        "categories": {j: list(range(10)) for j in range(10, 20)},
        "classes": [0, 1],
    }


def one_hot(X, declaration):
    """Categories as one column each, a missing number as 0: for peers without either."""
    parts = [np.nan_to_num(X[:, sorted(declaration["bounds"])])]
    for j, values in declaration["categories"].items():
        parts.append((X[:, [j]] == np.array(values, dtype=np.float32)).astype(np.float32))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


# Fits -------------------------------------------------------------------------------------------


def lumberjack(settings, declaration, n_jobs=N_JOBS):
    """An estimator of this library."""
    from lumberjack import LumberjackClassifier

    return LumberjackClassifier(
        N_TREES, epsilon=EPSILON, delta=DELTA, n_jobs=n_jobs, **SETTINGS[settings], **declaration
    )


def extra_trees(min_samples_split=500, n_jobs=N_JOBS):
    """The non-private forest nearest to random splits."""
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(
        N_TREES, max_features=1, min_samples_split=min_samples_split, n_jobs=n_jobs
    )


PEER_PACKAGES = {
    "sklearn": "scikit-learn",
    "diffprivlib": "diffprivlib",
    "interpret": "interpret-core",
}


class Worker:
    """A peer in a Python of its own, which fits when told to and answers with the times."""

    def __init__(self, python, peer, data, name):
        self.process = subprocess.Popen(
            [python, __file__, "--worker", peer, data, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self.process.stdout.readline().strip()

    def fit(self):
        """Wall and processor seconds of one fit."""
        self.process.stdin.write("fit\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def worker_main(peer, path, name):
    """Serve a `Worker`: print the version, or an empty line if the peer is missing."""
    try:
        version = importlib.metadata.version(PEER_PACKAGES[peer])
        make = {"diffprivlib": diffprivlib_forest, "interpret": interpret_ebm}[peer](name)
    except ImportError:
        print(flush=True)
        return
    print(version, flush=True)
    with np.load(path) as data:
        X, y, lower, upper = (data[name] for name in ("X", "y", "lower", "upper"))
    for _ in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(json.dumps(timed(lambda: make(lower, upper).fit(X, y))), flush=True)


# Trees and depth with which diffprivlib's forest is most accurate at epsilon 1, of the settings
# tried on a tenth left out, and that accuracy. Adult: 3 of 15 0.802, 5 of 15 0.795, 10 of 16 0.790
# (no model 0.758). ACS income: 5 of 15 0.754, 10 of 15 0.753, 3 of 15 0.748, 5 of 10 0.736.
# Flights: 10 of 10 0.7645, 5 of 10 0.7625, 3 of 15 0.742, none above no model, 0.7647.
DIFFPRIVLIB_SETTINGS = {"adult": (3, 15), "acs": (5, 15), "flights": (10, 10)}


def diffprivlib_forest(name):
    """diffprivlib's forest at its most accurate setting on a table."""
    from diffprivlib.models import RandomForestClassifier

    n_estimators, max_depth = DIFFPRIVLIB_SETTINGS[name]
    return lambda lower, upper: RandomForestClassifier(
        n_estimators=n_estimators, max_depth=max_depth, epsilon=EPSILON,
        bounds=(lower, upper), classes=[0, 1], n_jobs=N_JOBS,
    )  # fmt: skip


def interpret_ebm(name):
    """The additive model of interpret (DP-EBM) at its defaults but for epsilon and delta."""
    from interpret.privacy import DPExplainableBoostingClassifier

    return lambda lower, upper: DPExplainableBoostingClassifier(
        epsilon=EPSILON, delta=DELTA, n_jobs=1,  # one bag: one job, without a process
        privacy_bounds={j: (a, b) for j, (a, b) in enumerate(zip(lower, upper, strict=True))},
    )  # fmt: skip


def start_workers(name, options, X, y, folder):
    """Start the peers that run elsewhere on a table; None for one that is missing."""
    X = np.nan_to_num(X, nan=-1.0)
    path = str(Path(folder, "peer.npz"))
    np.savez(path, X=X, y=y, lower=X.min(axis=0), upper=X.max(axis=0))
    workers = {}
    for peer in options.peers:
        if peer == "sklearn":
            continue
        python = getattr(options, f"{peer}_python") or sys.executable
        worker = Worker(python, peer, path, name)
        workers[peer] = worker if worker.version else None
        options.versions[peer] = worker.version or "missing"
    return workers


def fit_real(name, options, table):
    """Fit a real table: random and default settings, and the peers."""
    frame, X, y, declaration = real_table(name)
    encoded = one_hot(X, declaration)
    case = f"fit-{name}"
    own = {"bounds": frame.bounds, "classes": frame.classes}
    runs = {
        "random": lambda: timed(lambda: lumberjack("random", declaration).fit(X, y)),
        "default": lambda: timed(lambda: lumberjack("default", declaration).fit(X, y)),
        "frame": lambda: timed(lambda: lumberjack("default", own).fit(frame.X, frame.y)),
    }
    if "sklearn" in options.peers:
        runs["sklearn"] = lambda: timed(lambda: extra_trees().fit(encoded, y))
    with tempfile.TemporaryDirectory() as folder:
        workers = start_workers(name, options, X, y, folder)
        for peer, worker in workers.items():
            runs[peer] = worker and worker.fit
        times = alternate(runs, options.repeats)
        for worker in filter(None, workers.values()):
            worker.close()
    if "sklearn" in options.peers:
        goals = (4, 2) if name == "adult" else (None, None)
        for settings, goal in zip(("random", "default"), goals, strict=True):
            table.compare(
                case, f"{settings}, against ExtraTrees one-hot", times, settings, "sklearn",
                goal and (">=", goal),
            )  # fmt: skip
        table.compare(case, "default from a DataFrame, the same", times, "frame", "sklearn")
    for peer in workers:
        goal = (">=", 20) if peer == "diffprivlib" else None
        table.compare(case, f"random, against {peer}", times, "random", peer, goal)
        table.compare(case, f"default, against {peer}", times, "default", peer, goal)
    if name == "adult":
        cpu = np.median([t[1] for t in times["random"]])
        table.add(
            case, "random, against the authors' (cpu, quoted)", cpu, AUTHORS_SECONDS, (">=", 300)
        )


def fit_made(n_records, options, table):
    """Fit made data; ExtraTrees gets the codes of the categories as numbers, its faster way."""
    X, y, declaration = made_table(n_records)
    runs = {
        settings: lambda settings=settings: timed(
            lambda: lumberjack(settings, declaration).fit(X, y)
        )
        for settings in SETTINGS
    }
    if "sklearn" in options.peers:
        runs["sklearn"] = lambda: timed(lambda: extra_trees().fit(X, y))
    times = alternate(runs, options.repeats)
    case = f"fit-made-1e{len(str(n_records)) - 1}"
    for settings in SETTINGS:
        if "sklearn" in options.peers:
            table.compare(case, f"{settings}, against ExtraTrees", times, settings, "sklearn")
    medians = {name: np.median([t[0] for t in own]) for name, own in times.items()}
    cpu = {name: np.median([t[1] for t in own]) for name, own in times.items()}
    before = options.medians.get(n_records // 10)
    options.medians[n_records] = medians, cpu
    if before:
        for name in medians:
            table.add(
                case, f"{name}: growth from a tenth of the records", before[0][name],
                medians[name], ("<=", 16) if name in SETTINGS else None,
                cpu=cpu[name] / before[1][name],
            )  # fmt: skip


# Parts of a fit -----------------------------------------------------------------------------------


def growth_time(model, X, y, **kernel_options):
    """Times of the growth of the trees alone in a fit, with options of the kernel."""
    from lumberjack import _forest

    seconds = []
    grow = _forest.grow_forest

    def measured(*args, **kwargs):
        result = []
        seconds.append(timed(lambda: result.append(grow(*args, **{**kwargs, **kernel_options}))))
        return result[0]

    with mock.patch.object(_forest, "grow_forest", measured):
        model.fit(X, y)
    return seconds[0]


def lazy(options, table):
    """Lazy tests on against off; off expands and tests every node of a level that is not empty."""
    _, X, y, declaration = real_table("adult")
    times = alternate(
        {
            mode: lambda on=mode == "on": growth_time(
                lumberjack("random", declaration), X, y, lazy=on
            )
            for mode in ("on", "off")
        },
        options.repeats,
    )
    table.compare("lazy", "Adult, random: lazy tests off", times, "on", "off", (">=", 15))


# Thirty tasks as a tree is one: passes that part records by a column, in memory of the task.
PLAIN_LOOP = r"""
#include <stdlib.h>
#include <string.h>
void plain_loop(const float *column, int n, int n_tasks, int n_passes, int n_threads) {
    #pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int t = 0; t < n_tasks; t++) {
        int *records = malloc(n * sizeof(int)), *scratch = malloc(n * sizeof(int));
        for (int i = 0; i < n; i++) records[i] = i;
        for (int pass = 0; pass < n_passes; pass++) {
            float threshold = (pass * 7 + t) % 19 / 19.0f;
            long left = 0;
            for (long i = 0; i < n; i++) {
                int record = records[i];
                records[left] = record;
                scratch[i - left] = record;
                left += column[record] <= threshold;
            }
            memcpy(records + left, scratch, (n - left) * sizeof(int));
        }
        free(records);
        free(scratch);
    }
}
"""


def compile_plain_loop(folder):
    """Compile the plain OpenMP loop with the system's compiler."""
    source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
    source.write_text(PLAIN_LOOP)
    command = [os.environ.get("CC", "cc"), "-O3", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library)).plain_loop


def threads(options, table):
    """Two threads against one, beside what a plain OpenMP loop gains in the same minutes."""
    _, X, y, declaration = real_table("acs")
    column = np.random.default_rng(0).random(len(X), dtype=np.float32)
    pointer = column.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    with tempfile.TemporaryDirectory() as folder:
        loop = compile_plain_loop(folder)
        runs = {}
        for n in (1, 2):
            runs[f"loop {n}"] = lambda n=n: timed(lambda: loop(pointer, len(X), N_TREES, 25, n))
            for settings in SETTINGS:
                runs[f"{settings} {n}"] = lambda n=n, settings=settings: growth_time(
                    lumberjack(settings, declaration), X, y, n_threads=n
                )
            runs[f"few {n}"] = lambda n=n: timed(
                lambda: lumberjack("random", declaration, n_jobs=n).fit(X[:500], y[:500])
            )
        times = alternate(runs, 2 * options.repeats)
    table.compare("threads", "plain OpenMP loop, 2 against 1", times, "loop 2", "loop 1")
    plain = table.rows[-1]["ratio"]
    for settings in SETTINGS:
        table.compare(
            "threads", f"ACS, {settings}: growth, 2 against 1", times, f"{settings} 2",
            f"{settings} 1", (">=", 0.9 * plain),
        )  # fmt: skip
    table.compare("threads", "500 records: fit, 2 against 1", times, "few 2", "few 1", (">=", 0.95))


# Prediction ---------------------------------------------------------------------------------------


def forest_with_nodes(X, y, n_nodes):
    """ExtraTrees with about so many nodes."""
    best = None
    for min_samples_split in np.geomspace(20, 2000, 24).astype(int):
        model = extra_trees(int(min_samples_split)).fit(X, y)
        nodes = sum(tree.tree_.node_count for tree in model.estimators_)
        if best is None or abs(nodes - n_nodes) < best[0]:
            best = abs(nodes - n_nodes), model, nodes
    return best[1:]


def predict(options, table):
    """A million rows at once."""
    X, y, declaration = made_table(100_000)
    rows = made_table(1_000_000, seed=1)[0]
    for settings in SETTINGS:
        ours = lumberjack(settings, declaration).fit(X, y)
        runs = {"ours": lambda ours=ours: timed(lambda: ours.predict_proba(rows))}
        what = f"{settings}: 10^6 rows"
        if "sklearn" in options.peers:
            other, nodes = forest_with_nodes(X, y, len(ours.nodes_))
            runs["sklearn"] = lambda other=other: timed(lambda: other.predict_proba(rows))
            what += f", {len(ours.nodes_)} / {nodes} nodes"
        times = alternate(runs, options.repeats)
        if "sklearn" in options.peers:
            table.compare("predict", what, times, "ours", "sklearn", (">=", 3))
        else:
            table.add("predict", what, np.median([t[0] for t in times["ours"]]))


def one_row(options, table):
    """One row at a time, a C-contiguous array."""
    X, y, declaration = made_table(100_000)
    row = X[:1].copy()
    models = {name: lumberjack(name, declaration).fit(X, y) for name in SETTINGS}
    if "sklearn" in options.peers:
        models["sklearn"] = extra_trees(n_jobs=1).fit(X, y)  # the faster for one row
    calls = 50

    def many(model):
        return timed(lambda: [model.predict_proba(row) for _ in range(calls)])

    times = alternate(
        {name: functools.partial(many, model) for name, model in models.items()}, options.repeats
    )
    micro = {name: 1e6 / calls * np.median([t[0] for t in own]) for name, own in times.items()}
    for settings in SETTINGS:
        table.add(
            "one-row", f"{settings}: predict_proba of one row", micro[settings], None,
            ("<=", 300), unit="us", times=times[settings],
        )  # fmt: skip
        if "sklearn" in micro:
            table.compare(
                "one-row", f"{settings}: {calls} rows, one by one", times, settings, "sklearn"
            )


# Memory and import ------------------------------------------------------------------------------


def memory_worker(n_records, settings, n_jobs):
    """Print the peak of resident memory in a fit beyond what was there before, in bytes."""
    X, y, declaration = made_table(n_records)
    model = lumberjack(settings, declaration, n_jobs)
    lumberjack(settings, declaration, n_jobs).fit(X[:1000], y[:1000])
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    model.fit(X, y)
    print(resident("VmHWM") - before)


def resident(field):
    """A size in /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise LookupError(field)


def memory(options, table):
    """Peak beyond the input and one encoded copy, against what is allowed."""
    n_records = int(options.memory_records)
    for settings in SETTINGS:
        worker = [__file__, "--memory-worker", str(n_records), settings, str(N_JOBS)]
        output = subprocess.run(
            [sys.executable, *worker], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        beyond = int(output.split()[-1]) - 4 * 20 * n_records
        allowed = 12 * n_records * N_JOBS + 100e6
        table.add(
            "memory", f"{settings}: {n_records:.0e} x 20, of what is allowed", beyond / 1e6,
            allowed / 1e6, (">=", 1), unit="MB",
        )  # fmt: skip


IMPORT = """
import time
import sklearn.ensemble
start = time.perf_counter(), time.process_time()
import lumberjack
print([time.perf_counter() - start[0], time.process_time() - start[1]])
"""


def import_time(options, table):
    """Time to import the library where scikit-learn is imported already."""

    # Without bytecode on the disk, which the first run writes, Python would compile each time.
    compiled = {**os.environ}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)

    def run():
        output = subprocess.run(
            [sys.executable, "-c", IMPORT], check=True, stdout=subprocess.PIPE, env=compiled
        )
        return tuple(json.loads(output.stdout))

    times = alternate({"import": run}, options.repeats)["import"]
    wall, cpu = (1e3 * np.median([t[i] for t in times]) for i in (0, 1))
    table.add("import", "lumberjack beyond scikit-learn", wall, None, ("<=", 50), "ms", times=times)
    table.add("import", "the same, processor time", cpu, None, None, "ms")


# The command --------------------------------------------------------------------------------------

CASES = {
    "fit-adult": functools.partial(fit_real, "adult"),
    "fit-acs": functools.partial(fit_real, "acs"),
    "fit-flights": functools.partial(fit_real, "flights"),
    "lazy": lazy,
    "threads": threads,
    "predict": predict,
    "one-row": one_row,
    "import": import_time,
    "fit-made-1e5": functools.partial(fit_made, 10**5),
    "fit-made-1e6": functools.partial(fit_made, 10**6),
    "fit-made-1e7": functools.partial(fit_made, 10**7),
    "memory": memory,
}


def environment(options):
    """What the numbers were measured with."""
    versions = {"python": platform.python_version()}
    for package in ("lumberjack-dp", "numpy", "scipy", "scikit-learn"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "versions": {**versions, **options.versions},
        "machine": platform.machine(),
        "cpu": next(
            (
                line.split(":")[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ),
            platform.processor(),
        ),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "repeats": options.repeats,
        "peers": options.peers,
    }


def parse(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE",
                        help=f"cases to run, of: {', '.join(CASES)}")  # fmt: skip
    parser.add_argument("--peers", default="sklearn,diffprivlib,interpret", type=_peers)
    parser.add_argument("--diffprivlib-python", metavar="PATH", help="Python with diffprivlib")
    parser.add_argument("--interpret-python", metavar="PATH", help="Python with interpret-core")
    parser.add_argument("--repeats", type=int, default=5, help="runs whose median is taken")
    parser.add_argument("--memory-records", type=float, default=1e7, help="of the case memory")
    parser.add_argument("--json", type=Path, default=Path("speed.json"), help="where to write it")
    options = parser.parse_args(arguments)
    options.versions, options.medians = {}, {}
    return options


def _peers(text):
    peers = [name for name in text.split(",") if name]
    unknown = set(peers) - set(PEER_PACKAGES)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown peers: {', '.join(sorted(unknown))}")
    return peers


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker_main(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--memory-worker"]:
        memory_worker(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    options = parse(sys.argv[1:])
    if options.repeats < 5:
        print("fewer than 5 repeats: for trying out only")
    table = Table()
    for name in options.only:
        CASES[name](options, table)
    result = {"environment": environment(options), "rows": table.rows}
    options.json.write_text(json.dumps(result, indent=1, default=float) + "\n")
    print(f"\n{json.dumps(result['environment'], indent=1)}\nwritten to {options.json}")


if __name__ == "__main__":
    main()
