"""Git repositories whose commits make a program slower or faster."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(where: Path, *words: str) -> str:
    """Run git, and return its output."""
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", "-C", str(where), *settings, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def committed(where: Path, message: str) -> str:
    """Commit all files of a directory, a repository from then on, and return the hash."""
    if not (where / ".git").exists():
        git(where, "init", "-b", "main")
    git(where, "add", ".")
    git(where, "commit", "--allow-empty", "-m", message)
    return git(where, "rev-parse", "HEAD")
