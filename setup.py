"""Puts the binaries into the Python package; everything else is in pyproject.toml."""
import os
import pathlib
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r"project\(Partita VERSION ([\d.]+)",
                    (ROOT / "CMakeLists.txt").read_text()).group(1)


def build_folder():
    if "PARTITA_BUILD" in os.environ:
        return pathlib.Path(os.environ["PARTITA_BUILD"]).resolve()
    folder = ROOT / "build" / "release"
    subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
    subprocess.run(["ninja", "-C", str(folder), "partita", "partita-run",
                    "partita_runtime", "partita_mpi", "partita_compiler"], check=True)
    return folder


class BuildWithBinaries(build_py):
    def run(self):
        super().run()
        folder, target = build_folder(), pathlib.Path(self.build_lib) / "partita"
        for part, names in [("bin", ["partita", "partita-run"]),
                            ("lib", ["libpartita_runtime.so", "libpartita_mpi.so",
                                     "libpartita_compiler.so"])]:
            (target / part).mkdir(parents=True, exist_ok=True)
            for name in names:
                if (folder / part / name).exists():
                    shutil.copy2(folder / part / name, target / part / name)


class WithBinaries(Distribution):
    def has_ext_modules(self):  # the wheel is for one platform
        return True


setup(version=VERSION, cmdclass={"build_py": BuildWithBinaries},
      distclass=WithBinaries)
