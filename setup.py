"""Puts v0_bench_hook.pth at the root of wheels, editable ones too; pyproject.toml cannot say it."""

from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from wheel.wheelfile import WheelFile  # setuptools brings it

HOOK = "v0_bench_hook.pth"


class BuildPy(build_py):
    """Builds the modules, and the hook beside them."""

    def run(self):
        super().run()
        if not self.editable_mode:
            copy(HOOK, self.build_lib)

    def get_source_files(self):
        return [*super().get_source_files(), HOOK]

    def get_outputs(self, include_bytecode=True):
        own = [] if self.editable_mode else [str(Path(self.build_lib, HOOK))]
        return [*super().get_outputs(include_bytecode), *own]


class EditableWheel(editable_wheel):
    """Writes the finished wheel anew with the hook, so that its RECORD lists it."""

    def run(self):
        super().run()
        (wheel,) = Path(self.dist_dir).glob("*.editable-*.whl")
        with TemporaryDirectory() as folder:
            with ZipFile(wheel) as archive:
                archive.extractall(folder)
            copy(HOOK, folder)
            with WheelFile(wheel, "w") as archive:
                archive.write_files(folder)


setup(cmdclass={"build_py": BuildPy, "editable_wheel": EditableWheel})
