"""perfpipe init."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.writing import written


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path), default=Path("workloads"))
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init_command(directory: Path, force: bool) -> None:
    """Copy the example workloads into DIRECTORY (default: workloads).

    Run a workload with `perfpipe run DIRECTORY/gemm.yaml`, then adapt the workload to your own
    program.
    """
    with resources.as_file(resources.files("perfpipe.workloads")) as source:
        files = [
            path
            for path in sorted(source.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts and path.name != "__init__.py"
        ]
        targets = [directory / path.relative_to(source) for path in files]
        existing = [target for target in targets if target.exists()]
        if existing and not force:
            raise InputError(f"{existing[0]} already exists; --force overwrites it")
        for path, target in zip(files, targets, strict=True):
            _copy(path, target)
    for target in targets:
        click.echo(target)


def _copy(path: Path, target: Path) -> None:
    """Copy a file whole, or not at all."""
    with written(target) as temporary:
        shutil.copyfile(path, temporary)
