"""Builds the compiled kernels; everything else stands in pyproject.toml.

OpenMP is used when the compiler has it. Without it the package still builds and gives the same
results, on one core; LUMBERJACK_NO_OPENMP=1 asks for that build.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

KERNELS = (
    "_domain",
    "_heavy_hitters",
    "_codes",
    "_tree",
    "_forest",
    "_predict",
    "_guide",
    "_hierarchy",
)

# No -march=native (the wheel must run on other machines) and no -ffast-math. Fused multiply-add
# is off so that a split, a pure function of the seed, is the same on every architecture.
UNIX_FLAGS = ["-O3", "-ffp-contract=off"]
MSVC_FLAGS = ["/O2", "/fp:precise"]

OPENMP_FLAGS = {
    "msvc": (["/openmp"], []),
    "darwin": (["-Xpreprocessor", "-fopenmp"], ["-lomp"]),
    "unix": (["-fopenmp"], ["-fopenmp"]),
}
OPENMP_PROBE = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n"


class BuildKernels(build_ext):
    """Adds the optimisation flags, and those of OpenMP when a probe program links."""

    def build_extensions(self):
        msvc = self.compiler.compiler_type == "msvc"
        platform = "msvc" if msvc else "darwin" if sys.platform == "darwin" else "unix"
        compile_args, link_args = OPENMP_FLAGS[platform]
        if not self.openmp_links(compile_args, link_args):
            compile_args, link_args = [], []
        for extension in self.extensions:
            extension.extra_compile_args = (MSVC_FLAGS if msvc else UNIX_FLAGS) + compile_args
            extension.extra_link_args = link_args
        super().build_extensions()

    def openmp_links(self, compile_args, link_args):
        if os.environ.get("LUMBERJACK_NO_OPENMP", "0") not in ("", "0"):
            print("lumberjack: building without OpenMP, as LUMBERJACK_NO_OPENMP asks (one core)")
            return False
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(OPENMP_PROBE)
            try:
                objects = self.compiler.compile(
                    [str(source)], output_dir=folder, extra_postargs=list(compile_args)
                )
                self.compiler.link_executable(
                    objects, str(Path(folder, "probe")), extra_postargs=list(link_args)
                )
            except Exception as error:  # the compiler's error classes differ by platform
                print(f"lumberjack: building without OpenMP (one core): the probe failed: {error}")
                return False
        return True


class SourceArchive(sdist):
    """Takes tests and benchmarks in whole, so that the tests run from the archive, too."""

    def make_distribution(self):
        for folder in ("tests", "benchmarks"):
            self.filelist.extend(
                str(path)
                for path in Path(folder).rglob("*")
                if path.is_file() and path.suffix != ".pyc"
            )
        self.filelist.exclude_pattern("lumberjack/*.c")  # made anew from the .pyx files
        super().make_distribution()


extensions = [
    Extension(
        f"lumberjack.{name}",
        [f"lumberjack/{name}.pyx"],
        include_dirs=[numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
    )
    for name in KERNELS
]

setup(
    ext_modules=cythonize(extensions),
    cmdclass={"build_ext": BuildKernels, "sdist": SourceArchive},
)
