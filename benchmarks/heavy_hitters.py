"""Heavy hitters of a hierarchy beside the top-down baseline: error, time and memory.

    python benchmarks/heavy_hitters.py --json heavy.json --figure heavy_hitters.png
    python benchmarks/heavy_hitters.py --quick
    python benchmarks/heavy_hitters.py --read heavy.json --figure heavy_hitters.png

Made data: every record follows one of 2,000 stems, chosen by a heavy-tailed law, down to a random
level, and goes its own way from there, so that many nodes on all levels have counts near the
threshold. Where the height varies a level has 16 parts, where the number of records does it is a
bit. Both methods spend the same (epsilon, delta) on the structure alone and skip nodes that
are almost empty in the same way. The baseline needs the larger threshold; both are given that one.

An error is the distance from the threshold to the largest count missed or the smallest count
reported, whichever is farther, against the noiseless answer. Beside it stands the largest count
missed with each method's own least threshold. Errors and times are medians over the repeats; a time
is that of sorting and searching, from paths in memory. At last 10^7 keys of 64 bits are fitted in a
process of their own, whose time and peak of resident memory are shown.
"""

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from lumberjack import HierarchicalHeavyHitters, accounting, hierarchy, noise

EPSILON = 1.0
DELTA = 1e-6
METHODS = ("binary_search", "top_down")
HEIGHTS = (4, 8, 16, 32, 64, 100, 128, 256, 512, 1024)
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
N_RECORDS = 2 * 10**5  # where the height varies
HEIGHT = 64  # where the number of records varies
PART_BITS = 4  # where the height varies
N_STEMS = 2000
GOAL_HEIGHT, GOAL_RATIO = 100, 0.3
GOAL_SECONDS, GOAL_MEMORY = 30.0, 2e9


# Data -------------------------------------------------------------------------------------------


def make_paths(n_records, height, rng, part_bits=1):
    """Paths as packed words of shape (n_words, n_records), not sorted."""
    n_words = -(-height * part_bits // 64)
    weights = np.arange(1, N_STEMS + 1) ** -0.8
    stems = rng.integers(0, 2**64, (n_words, N_STEMS), dtype=np.uint64)
    chosen = rng.choice(N_STEMS, n_records, p=weights / weights.sum())
    shared = part_bits * rng.integers(1, height + 1, n_records)  # bits
    words = np.empty((n_words, n_records), dtype=np.uint64)
    for w in range(n_words):
        tail = rng.integers(0, 2**64, n_records, dtype=np.uint64)
        own = low_bits(64 * (w + 1) - shared)
        words[w] = (stems[w][chosen] & ~own) | (tail & own)
    words[-1] &= ~low_bits(np.int64(64 * n_words - height * part_bits))
    return words


def low_bits(n):
    """Words whose lowest n bits are set, n clipped to 0..64."""
    n = np.clip(n, 0, 64)
    ones = np.uint64(2**64 - 1)
    return np.where(n == 0, np.uint64(0), ones >> np.uint64(64 - np.maximum(n, 1)))


# One run ------------------------------------------------------------------------------------------


def find(words, layout, calibration):
    """The heavy nodes as {hash of the path: exact count}, in two sorted arrays."""
    _, bits = noise.derive_keys(None)
    depths, parents, _, counts, keys = hierarchy.search(words, layout, calibration, None, bits)
    for depth in range(int(depths.max()), 0, -1):
        level = np.flatnonzero(depths == depth)
        np.add.at(counts, parents[level], counts[level])
    keys, counts = keys[1:], counts[1:]  # the root is not tested
    order = np.argsort(keys)
    return keys[order], counts[order]


def calibrate(method, height, threshold=None, epsilon=EPSILON):
    """Noise for the structure alone."""
    return accounting.calibrate_hierarchy(
        epsilon, DELTA, height=height, method=method, threshold=threshold
    )


def measure_errors(words, layout, height):
    """Thresholds and errors of both methods on one set of sorted paths."""
    own = {method: calibrate(method, height).threshold for method in METHODS}
    shared = max(own.values())
    found = {}
    for method in METHODS:
        missed, reported = mistakes(words, layout, method, height, shared)
        found[method] = {
            "threshold": shared,
            "missed": missed,
            "reported": reported,
            "error": max(missed - shared, shared - reported, 0.0),
            "own_threshold": own[method],
            "missed_of_own": mistakes(words, layout, method, height, own[method])[0],
        }
    return found


def mistakes(words, layout, method, height, threshold):
    """The largest count missed and the smallest count reported.

    Without a mistake they are the largest count below the threshold that could be missed, and so
    on: the threshold itself.
    """
    reported, counts = find(words, layout, calibrate(method, height, threshold))
    exact, exact_counts = find(words, layout, calibrate(method, height, threshold, math.inf))
    missed = exact_counts[~np.isin(exact, reported)]
    return (
        float(missed.max(initial=threshold)),
        float(counts.min(initial=threshold)),
    )


def time_of(words, layout, method, height):
    """Seconds of sorting and searching; the paths are left as they were."""
    calibration, words = calibrate(method, height), words.copy()
    _, bits = noise.derive_keys(None)
    start = time.perf_counter()
    hierarchy.search(hierarchy.sort_words(words), layout, calibration, None, bits)
    return time.perf_counter() - start


def measure(n_records, height, part_bits, repeats, seed=0):
    """Rows of both methods for one size and height."""
    layout = hierarchy.make_layout([part_bits] * height)
    runs = {method: [] for method in METHODS}
    for repeat in range(repeats):
        rng = np.random.default_rng([seed, n_records, height, repeat])
        words = make_paths(n_records, height, rng, part_bits)
        seconds = {method: time_of(words, layout, method, height) for method in METHODS}
        errors = measure_errors(hierarchy.sort_words(words), layout, height)
        for method in METHODS:
            runs[method].append({**errors[method], "seconds": seconds[method]})
    return [
        {
            "method": method, "height": height, "part_bits": part_bits, "records": n_records,
            "repeats": repeats,
            **{name: float(np.median([run[name] for run in own])) for name in own[0]},
        }
        for method, own in runs.items()
    ]  # fmt: skip


# Fitting many keys --------------------------------------------------------------------------------


def fit_worker(n_records):
    """Fit keys of 64 bits; print seconds and the peak of resident memory of this process."""
    keys = make_paths(n_records, 64, np.random.default_rng(0))[0].copy()
    with contextlib.suppress(OSError):  # Linux: the peak starts anew
        Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    start = time.perf_counter()
    model = HierarchicalHeavyHitters(EPSILON, DELTA, bit_length=64).fit(keys)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": peak_memory(), "peak_before": before,
                      "heavy": len(model.heavy_)}))  # fmt: skip


def peak_memory():
    """Peak of resident memory in bytes, since the last reset where there is /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure_fit(n_records):
    """The row of `fit_worker`, run in a process of its own."""
    command = [sys.executable, __file__, "--fit-worker", str(n_records)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {"method": "fit", "height": 64, "records": n_records, **json.loads(output)}


# Results ------------------------------------------------------------------------------------------


def print_rows(rows):
    """Print one line a row, with ratios to the baseline."""
    for row in rows:
        if row["method"] == "fit":
            print(
                f"fit of {row['records']:,} keys of 64 bits: {row['seconds']:.2f} s, peak "
                f"{row['peak'] / 1e6:.0f} MB (before: {row['peak_before'] / 1e6:.0f} MB)"
            )
            continue
        print(
            f"{row['records']:>10,}{row['height']:>7}  {row['method']:<15}{row['threshold']:>9.1f}"
            f"{row['missed']:>9.0f}{row['reported']:>10.0f}{row['error']:>9.1f}"
            f"{row['own_threshold']:>11.1f}{row['missed_of_own']:>12.0f}{row['seconds']:>10.3f}",
            flush=True,
        )


HEADER = (
    f"{'records':>10}{'height':>7}  {'method':<15}{'tau':>9}{'missed':>9}{'reported':>10}"
    f"{'error':>9}{'own tau':>11}{'missed then':>12}{'seconds':>10}"
)


def pairs(rows):
    """(search, baseline) of each size and height."""
    by_method = {
        method: {
            (r["records"], r["height"], r["part_bits"]): r for r in rows if r["method"] == method
        }
        for method in METHODS
    }
    search, baseline = (by_method[method] for method in METHODS)
    return [(search[key], baseline[key]) for key in search if key in baseline]


def goals(rows):
    """Yield (claim, what was measured, whether it is reached)."""
    for search, baseline in pairs(rows):
        if search["height"] == GOAL_HEIGHT and baseline["error"]:
            ratio = search["error"] / baseline["error"]
            claim = f"error at height {GOAL_HEIGHT} at most {GOAL_RATIO} of the baseline's"
            yield claim, f"{ratio:.3f}", ratio <= GOAL_RATIO
    for row in rows:
        if row["method"] == "fit" and row["records"] == 10**7:
            claim = f"10^7 keys of 64 bits in {GOAL_SECONDS:g} s"
            yield claim, f"{row['seconds']:.2f} s", row["seconds"] <= GOAL_SECONDS
            claim = f"the same within {GOAL_MEMORY / 1e9:g} GB"
            yield claim, f"{row['peak'] / 1e9:.2f} GB", row["peak"] <= GOAL_MEMORY


def draw(rows, path):
    """Error over the height, and error and time over the number of records."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13.5, 4), layout="constrained")
    own = [row for row in rows if row["method"] in METHODS]
    by_height = [row for row in own if row["part_bits"] == PART_BITS]
    by_size = [row for row in own if row["part_bits"] == 1]
    draw_panel(axes[0], by_height, "height", "error")
    draw_guides(axes[0], by_height)
    axes[0].set_xscale("log", base=2)
    axes[0].set(xlabel="levels h", ylabel="error in records",
                title=f"{by_height[0]['records']:,} records")  # fmt: skip
    draw_panel(axes[1], by_size, "records", "error")
    axes[1].set(xlabel="records", ylabel="error in records", title=f"keys of {HEIGHT} bits",
                xscale="log")  # fmt: skip
    draw_panel(axes[2], by_size, "records", "seconds")
    axes[2].set(xlabel="records", ylabel="seconds", title=f"keys of {HEIGHT} bits: sort and search",
                xscale="log")  # fmt: skip
    for axis in axes:
        axis.set_yscale("log")
        if axis is not axes[2]:
            axis.set_ylim(bottom=1)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_panel(axis, rows, x, y):
    """A line for each method."""
    for method, color in zip(METHODS, ("C2", "C1"), strict=True):
        line = sorted((row[x], row[y]) for row in rows if row["method"] == method)
        axis.plot(*zip(*line, strict=True), "o-", color=color, label=method)


def draw_guides(axis, rows):
    """How the noise grows, at the mean height of the errors: sqrt(1 + floor(log2 h)), sqrt(h)."""
    heights = sorted({row["height"] for row in rows})
    grow = {
        "binary_search": ("$\\sqrt{1 + \\lfloor\\log_2 h\\rfloor}$", "C2"),
        "top_down": ("$\\sqrt{h}$", "C1"),
    }
    for method, (label, color) in grow.items():
        roots = np.sqrt([accounting.hierarchy_tests(method, h) for h in heights])
        errors = [row["error"] for row in rows if row["method"] == method]
        scale = np.mean(np.log(np.maximum(errors, 1))) - np.mean(np.log(roots))
        axis.plot(heights, np.exp(scale) * roots, ":", color=color, label=label)


def environment():
    """What the numbers were measured with."""
    versions = {"python": platform.python_version()}
    for package in ("lumberjack-dp", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "versions": versions,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "epsilon": EPSILON,
        "delta": DELTA,
    }


# Command ----------------------------------------------------------------------------------------


def run(options):
    """Measure, printing each row when it is there."""
    heights, sizes, n_records, fit_records = HEIGHTS, SIZES, N_RECORDS, 10**7
    if options.quick:
        heights, sizes, n_records, fit_records = (4, 100), (1000, 3000), 5000, 10_000
    print(HEADER)
    rows = []
    cases = [(n_records, h, PART_BITS) for h in heights] + [(n, HEIGHT, 1) for n in sizes]
    for case in cases:
        rows += measure(*case, options.repeats)
        print_rows(rows[-2:])
    rows.append(measure_fit(fit_records))
    print_rows(rows[-1:])
    return rows


def parse(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--repeats", type=int, default=5, help="made data sets whose median is taken")
    add("--quick", action="store_true", help="few and small data, for trying out only")
    add("--json", type=Path, help="write the rows here")
    add("--figure", nargs="?", type=Path, const=Path(__file__).with_suffix(".png"),
        help="draw the rows here")  # fmt: skip
    add("--read", type=Path, metavar="JSON", help="rows of an earlier run instead of new ones")
    return parser.parse_args(arguments)


def main():
    if sys.argv[1:2] == ["--fit-worker"]:
        fit_worker(int(sys.argv[2]))
        return
    options = parse(sys.argv[1:])
    if options.read:
        rows = json.loads(options.read.read_text())["rows"]
        print(HEADER)
        print_rows(rows)
    else:
        rows = run(options)
    if options.json:
        result = {"environment": environment(), "rows": rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.figure:
        draw(rows, options.figure)
    for claim, measured, reached in goals(rows):
        print(f"goal: {claim}: {measured}: {'reached' if reached else 'MISSED'}")


if __name__ == "__main__":
    main()
