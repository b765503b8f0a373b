"""Where launches run, so that no file of the user changes and each launch begins alike.

A launch sees its working directory, and other directories that it names, through an overlay; where
that is not possible, it gets a copy of the working directory.  Both are fresh for each launch: a
program that resumes from a checkpoint does the same work each time.  Nothing remains afterwards.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from perfpipe.errors import InputError
from perfpipe.files import printable
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.trying import copying, directories, overlay, services
from perfpipe.pipelines.trying.outside import Watch, home, named, usual_places
from perfpipe.pipelines.trying.preparing import BUILD_S, apply, build
from perfpipe.scratch import scratch
from perfpipe.units import format_bytes

Mode = Literal["auto", "overlay", "copy", "in-place"]

#: Files from this size on are compared by their size only, bytes.
HASHED = 256 << 20

#: Free space below which the disk of the changes counts as full, bytes.
_FULL = 64 << 20

#: Directories whose files are not results.
_BYTECODE, _GIT = "__pycache__", ".git"


@dataclass
class Place:
    """Where one launch runs: put `wrapper` in front of the words that `rewritten` returns.

    `kind` is overlay, copy or in-place.  `env` are the variables that the place adds.  `notes` are
    sentences for the user, complete after `written` and `outside`.
    """

    kind: str
    cwd: Path
    env: dict[str, str]
    wrapper: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    _watch: Watch = field(default_factory=Watch)
    _overlaid: overlay.Overlaid | None = None
    _copied: copying.Copied | None = None
    _before: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)
    _names: tuple[Path, ...] = ()
    _given: Mapping[str, str] = field(default_factory=dict)
    _also: Callable[[Path], overlay.Layer | None] | None = None
    _learn: Callable[[Path], bool] | None = None

    def rewritten(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command for this place.

        Paths in a copied directory point into the copy.  Directories that the command names
        elsewhere are overlaid too.  Ranks of torchrun and accelerate meet at a free port.
        """
        done, env = services.at_port(words, services.free_port())
        self.env |= {name: value for name, value in env.items() if name not in self._given}
        elsewhere = directories.named_directories(done, self.cwd)
        self._watch.roots += elsewhere
        if self._overlaid is not None:
            for directory in elsewhere:
                self._overlay(directory)
            self._overlaid.write()
        if self._copied is not None:
            moved = [self.moved(self._copied, word) for word in done]
            if moved != done:
                self._note("paths in the command point into the copy of the directory")
            return moved
        return done

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a launch, from those that it would have elsewhere.

        Paths in a copied directory point into the copy.  `rewritten` comes first.
        """
        copied = self._copied
        if copied is None:
            return {**given, **self.env}
        inherited = {name: os.environ.get(name, "") for name in directories.PATHS}
        moved = {name: self.moved(copied, value) for name, value in {**inherited, **given}.items()}
        changed = {name: value for name, value in moved.items() if value != inherited.get(name)}
        return {**given, **changed, **self.env}

    def _overlay(self, directory: Path) -> None:
        if self._overlaid is None or self._also is None:
            return
        known = {layer.directory for layer in self._overlaid.layers}
        layer = None if directory in known else self._also(directory)
        if layer is not None:
            self._overlaid.layers.append(layer)

    def moved(self, copied: copying.Copied, word: str) -> str:
        """Return a word with paths in the original directory replaced by those in the copy."""
        for name in self._names:
            pattern = rf"(?:(?<=^)|(?<=[=:,])){re.escape(str(name))}(?P<rest>/[^:,]*)?(?=$|[:,])"

            def moved(found: re.Match[str], name: Path = name) -> str:
                inside = (found["rest"] or "").lstrip("/")
                if copied.shares(Path(inside)):
                    return found[0]
                return str(copied.target / inside) if inside else str(copied.target)

            word = re.sub(pattern, moved, word)
        return word

    def written(self) -> dict[str, str]:
        """Return what the launch wrote: sha256 by path, relative to the working directory.

        Paths in other overlaid directories are absolute.  Instead of sha256, the value is
        "deleted", "-> AIM" for symbolic links, and "size N" for files of at least 256 MiB.
        Bytecode and files of git are not listed.
        """
        found = {}
        for path, file in self._changed():
            if _BYTECODE not in path.parts and _GIT not in path.parts:
                found[printable(str(path))] = self._content(file)
        if any(value.startswith("size ") for value in found.values()):
            self._note(f"files of {format_bytes(HASHED)} or more are compared by their size only")
        return dict(sorted(found.items()))

    def _changed(self) -> Iterator[tuple[Path, Path | None]]:
        if self._overlaid is not None:
            for layer in self._overlaid.layers:
                own = layer.directory == self._overlaid.directory
                for relative, file in overlay.changes(layer):
                    yield (relative if own else layer.directory / relative), file
            return
        after = copying.states(self.cwd)
        for relative in {**self._before, **after}:
            if self._before.get(relative) != after.get(relative):
                yield relative, self.cwd / relative if relative in after else None

    def changed(self) -> bool:
        """Return whether anything was written."""
        return any(True for _ in self._changed())

    def _content(self, file: Path | None) -> str:
        if file is None:
            return "deleted"
        try:
            if file.is_symlink():
                return f"-> {printable(str(file.readlink()))}"
            if not file.is_file():
                return "special file"
            if (size := file.stat().st_size) >= HASHED:
                return f"size {size}"
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        except OSError:
            return "unreadable"

    def outside(self) -> tuple[str, ...]:
        """Return the user's files elsewhere that changed during the launch."""
        if self._overlaid is not None:
            unprotected = self._overlaid.unprotected()
            self._watch.skipped |= {layer.directory for layer in self._overlaid.layers}
            self._watch.skipped -= {*unprotected}
            self._watch.roots += unprotected
        changed = self._watch.changed()
        if self._learn is not None:
            parents = dict.fromkeys(path.parent for path in changed)
            if new := [path for path in parents if self._learn(path)]:
                self._note(
                    f"files in {_listed(new)} changed during this launch; later launches are "
                    "protected there"
                )
        if self._watch.note:
            self._note(self._watch.note)
        return tuple(named(changed))

    @property
    def failure(self) -> str | None:
        """Why the launch did not begin; None if it did."""
        return self._overlaid.failure() if self._overlaid else None

    def _end(self) -> None:
        """Note what went wrong, and remove what processes left in shared memory."""
        if self._overlaid is not None:
            for directory in self._overlaid.unprotected():
                self._note(f"{printable(str(directory))} is not protected: it cannot be overlaid")
        if self.kind != "in-place":
            room = self._overlaid.room if self._overlaid else self.cwd
            if shutil.disk_usage(room).free < _FULL:
                self._note(
                    f"the disk with the files of launches ({room.parent}) is full; set TMPDIR to a "
                    "larger disk"
                )
        self._watch.remove_segments()

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


class Protection:
    """Protects a working directory; `launch` yields the place of each launch.

    `through` are directories of perfpipe that launches reach as they are.  `patch` is applied and
    `build` is run once, before the first launch; each launch begins with what they made.  `env` are
    the program's variables.  `also` are further directories to protect; those in which a launch
    writes are added to this list.  With `network`, logging services stay as they are.
    """

    def __init__(
        self,
        directory: Path,
        mode: str = "auto",
        *,
        through: Sequence[Path] = (),
        patch: Path | None = None,
        build: str | None = None,
        env: Mapping[str, str] | None = None,
        also: list[Path] | None = None,
        network: bool = False,
        most_bytes: int = copying.MOST_BYTES,
        most_files: int = copying.MOST_FILES,
    ) -> None:
        self.directory = Path.cwd() / directory
        self._real = self.directory.resolve()
        self._through = tuple(path.resolve() for path in through)
        self._patch, self._build = patch and patch.resolve(), build
        self._env, self._network = dict(env or {}), network
        self._also = [] if also is None else also
        self._limits = {"most_bytes": most_bytes, "most_files": most_files}
        self._asked = mode
        self._kind: str | None = None
        self._parent: Path | None = None
        self._prepared: Path | None = None
        self._shared: list[Path] = []
        self.why: str | None = None
        self._stack = ExitStack()
        self.close = weakref.finalize(self, self._stack.close)
        self._check()

    def __enter__(self) -> Protection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        """Raise InputError if the directory cannot be used."""
        shown = printable(str(self.directory))
        if self._asked not in get_args(Mode):
            raise InputError(f"{self._asked}: expected {', '.join(get_args(Mode))}")
        if not self._real.is_dir():
            raise InputError(f"{shown}: no such directory")
        if self._asked == "in-place":
            if self._patch or self._build:
                raise InputError("a patch or a build is not tried in place: it changes your files")
            return
        reserved = {Path("/"): "the root directory", home(): "your home directory"}
        for path in directories.temporary():
            reserved.setdefault(path, "the directory of temporary files")
        for path, what in reserved.items():
            if path.is_relative_to(self._real):
                is_it = "is" if path == self._real else "contains"
                raise InputError(
                    f"{shown} {is_it} {what}, which is not protected as a whole: choose a working "
                    "directory with --cwd, or use --in-place"
                )

    @property
    def kind(self) -> str:
        """How the directory is protected: overlay, copy or in-place; `why` says why not better.

        Raises InputError if it cannot be protected as asked.
        """
        if self._kind is None:
            self._kind = self._asked if self._asked in ("in-place", "copy") else self._best()
        return self._kind

    def _best(self) -> str:
        reasons = []
        for parent in directories.rooms(self._real):
            with scratch(parent) as room:
                reason = overlay.impossible(self._real, room)
            if reason is None:
                self._parent = parent
                return "overlay"
            reasons.append(reason)
        self.why = f"no overlay: {reasons[0] if reasons else 'no place for changes'}"
        if self._asked == "overlay":
            raise InputError(
                f"{printable(str(self.directory))} cannot be protected by an overlay "
                f"({self.why.removeprefix('no overlay: ')}); use a copy, or --in-place"
            )
        return "copy"

    @contextmanager
    def launch(self, *, offline: bool = False, build_s: float = BUILD_S) -> Iterator[Place]:
        """Yield a fresh place for a launch; it is removed in the end.

        With `offline`, nothing is downloaded, so the caches must have been filled.  `build_s` is
        how long a build may take that has not been run yet.
        """
        with ExitStack() as stack:
            place = self._place(stack, offline=offline, build_s=build_s)
            try:
                yield place
            finally:
                place._end()

    def _place(self, stack: ExitStack, *, offline: bool, build_s: float) -> Place:
        if (self._patch or self._build) and self._prepared is None:
            self._prepare(build_s)
        room = stack.enter_context(self._room())
        env: dict[str, str] = {}
        if not self._network:
            env = services.quiet({**os.environ, **self._env}, room, offline=offline)
        if self.kind == "overlay":
            place = self._overlay(room, env)
        elif self.kind == "copy":
            place = self._copy(room, env)
        else:
            place = Place("in-place", self.directory, env, _before=copying.states(self._real))
        place._watch, place._learn = self._watching(place), self._learned
        place._given = {**os.environ, **self._env}
        if self.why:
            place._note(self.why)
        return place

    @contextmanager
    def _room(self) -> Iterator[Path]:
        """Yield a directory for what a launch writes."""
        parent = self._parent or next(iter(directories.rooms(self._real)), None)
        if parent is None:
            raise InputError(
                "no place for the files that launches write: "
                f"{_listed(directories.temporary())} cannot be used; set TMPDIR to a directory "
                "outside the working directory"
            )
        with scratch(parent) as room:
            yield room

    def _overlay(self, room: Path, env: dict[str, str], *, prepared: bool = True) -> Place:
        lowers = [self._real]
        if prepared and self._prepared is not None:
            lowers.insert(0, self._prepared)
        layers = [overlay.Layer(self._real, tuple(lowers), room / "changes")]
        layers[0].make()
        seen = overlay.Overlaid(self._real, layers, room, self._kept())
        count = iter(range(1 << 20))

        def also(directory: Path, covered: bool = False) -> overlay.Layer | None:
            if not covered and not self._may_overlay(directory):
                return None
            layer = overlay.Layer(
                directory, (directory,), room / f"changes-{next(count)}", True, covered
            )
            try:
                layer.make()
            except OSError:
                return None
            return layer

        inside = [path for path in overlay.mounted_below(self._real) if os.access(path, os.W_OK)]
        others = [
            *self._also,
            *directories.linked(self._real),
            *directories.of_variables(self._env),
        ]
        found = [*(also(path, True) for path in inside), *map(also, dict.fromkeys(others))]
        layers += [layer for layer in found if layer is not None]
        seen.write()
        return Place("overlay", self.directory, env, seen.wrapper, _overlaid=seen, _also=also)

    def _may_overlay(self, directory: Path) -> bool:
        """Return whether another directory is only the program's, as far as one can see."""
        shared = (*directories.temporary(), home())
        return (
            directory.is_dir()
            and os.access(directory, os.W_OK)
            and not any(path.is_relative_to(directory) for path in shared)
            and not directory.is_relative_to(self._real)
            and not directories.is_shared(directory)
        )

    def _learned(self, directory: Path) -> bool:
        """Protect a directory in later launches; return whether that is new and possible."""
        shared = [path for path in usual_places() if path != home()]
        if directory in self._also or any(directory.is_relative_to(path) for path in shared):
            return False
        if not self._may_overlay(directory):
            return False
        self._also.append(directory)
        return self.kind == "overlay"

    def _kept(self) -> tuple[Path, ...]:
        return (*self._through, Path(tempfile.gettempdir()).resolve())

    def _copy(self, room: Path, env: dict[str, str]) -> Place:
        source = self._prepared or self._real
        copied = copying.copy(
            source,
            room / "copy" / (self._real.name or "directory"),
            names=(self._real, self.directory) if source == self._real else (),
            skipped=self._kept(),
            **self._limits,
        )
        # A copy of the prepared copy has its links.
        self._shared = copied.shared = [*dict.fromkeys([*self._shared, *copied.shared])]
        names = tuple(dict.fromkeys([self._real, self.directory, source]))
        place = Place(
            "copy", copied.target, env, _copied=copied, _before=copying.states(copied.target),
            _names=names,
        )  # fmt: skip
        if large := [path for path in copied.shared if (self._real / path).is_file()]:
            place._note(
                f"{_listed(large)} {'is' if len(large) == 1 else 'are'} not copied: the copy links "
                "to the original"
            )
        if copied.unreadable:
            place._note(f"{_listed(copied.unreadable)} cannot be read, and is not in the copy")
        return place

    def _watching(self, place: Place) -> Watch:
        roots = [
            *usual_places(),
            *self._also,
            *directories.linked(self._real),
            *directories.of_variables(self._env),
        ]
        skipped = {self._real, *self._through}
        if place._copied is not None:
            # A path in a file of the program may lead to the original.
            skipped.discard(self._real)
            roots += [self._real, *(self._real / path for path in place._copied.shared)]
        if place._overlaid is not None:
            skipped |= {layer.directory for layer in place._overlaid.layers}
        return Watch(roots, skipped)

    def _prepare(self, build_s: float) -> None:
        """Apply the patch and run the build, in a place that the launches begin with."""
        room = self._stack.enter_context(self._room())
        if self.kind == "overlay":
            place = self._overlay(room, {}, prepared=False)
            made = room / "changes" / "upper"
        else:
            place = self._copy(room, {})
            made = place.cwd
        shown = printable(str(self.directory))
        if self._patch is not None:
            apply(self._patch, shown, partial(self._run, place), place.changed)
        if self._build is not None:
            build(place.rewritten(shlex.split(self._build)), partial(self._run, place), build_s)
        self._prepared = made

    def _run(
        self, place: Place, words: Sequence[str], timeout: float, env: Mapping[str, str]
    ) -> Finished:
        variables = place.variables({**self._env, **env})
        return run([*place.wrapper, *words], cwd=place.cwd, env=variables, timeout=timeout)


def hint(text: str, kind: str) -> str | None:
    """Return why a program may fail in an overlay or a copy only, from its output."""
    if kind == "overlay" and os.strerror(errno.EXDEV) in text:
        return (
            "in an overlay, a directory that existed before the launch cannot be renamed: try a "
            "copy, or --in-place"
        )
    if kind == "copy" and os.strerror(errno.ENOENT) in text:
        return (
            "in a copy of the directory, relative paths that lead out of it do not exist: try "
            "--in-place"
        )
    return None


def _listed(paths: Sequence[Path]) -> str:
    texts = named(paths)
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
