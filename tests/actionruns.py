"""Runs the action as a runner does, beside a stand-in for a site and its repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ACTION = ROOT / "action.yml"


def load(path: Path) -> dict[str, Any]:
    """Return a file as CI systems read it: `on` is a word."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.yaml_implicit_resolvers = {  # type: ignore[attr-defined]
        first: [(tag, rule) for tag, rule in rules if first not in "oO"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    found: dict[str, Any] = yaml.load(path.read_text(), loader)
    return found


class Site:
    """Stands for a site's comments, as GitHub's or GitLab's API gives them."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = [{"id": at, "body": "other"} for at in range(100)]
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = int(re.findall(r"[?&]page=(\d+)", self.path)[0])
                self._answer(site.comments[100 * (page - 1) : 100 * page])

            def _change(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))["body"]
                if self.command == "POST":
                    site.comments.append({"id": len(site.comments), "body": body})
                else:
                    site.comments[int(self.path.rpartition("/")[2])]["body"] = body
                self._answer({})

            do_POST = do_PATCH = do_PUT = _change  # noqa: N815

            def _answer(self, content: object) -> None:
                site.asked.append(f"{self.command} {self.path}")
                site.headers = dict(self.headers)
                token = str(self.headers.get("Authorization")).removeprefix("Bearer ")
                if token == "mute":
                    return
                self.send_response(403 if token == "wrong" else 200)
                self.end_headers()
                self.wfile.write(json.dumps({} if token == "odd" else content).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def comment_site() -> Iterator[Site]:
    found = Site()
    yield found
    found.server.shutdown()
    found.server.server_close()


def _ask(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the values of its expressions: ||, &&, ==, != of names and words."""

    def value(expression: str) -> str:
        for operator in ("||", "&&", "==", "!="):
            first, found, rest = expression.partition(operator)
            if not found:
                continue
            one, other = value(first), value(rest)
            if operator in ("||", "&&"):
                return (one or other) if operator == "||" else (one and other)
            return "true" if (one == other) == (operator == "==") else ""
        word = expression.strip()
        if word == "always()":
            return "true"
        return word[1:-1] if word.startswith("'") else known.get(word, "")

    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: value(match[1]), text)


def act(
    known: dict[str, str], env: Mapping[str, str], where: Path, *, cwd: Path | None = None
) -> tuple[int, dict[str, str]]:
    """Run the shell steps of the action as a runner does; return the job's exit code and outputs.

    Other actions fail: their server is down.
    """
    action = load(ACTION)
    known = {
        **{f"inputs.{k}": str(v.get("default", "")) for k, v in action["inputs"].items()},
        **known,
    }
    job, said = 0, ""
    for step in action["runs"]["steps"]:
        condition = step.get("if", "${{ 'true' }}")
        if not _ask(condition, known) or (job and "always()" not in condition):
            continue
        code = 1
        if "run" in step:
            (where / "output").write_text("")
            own = {name: _ask(str(value), known) for name, value in step.get("env", {}).items()}
            script = where / "step.sh"
            script.write_text(step["run"])
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
                cwd=cwd or where, env={**env, **own, "GITHUB_ACTION_PATH": str(ROOT)},
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            for line in (where / "output").read_text().splitlines():
                name, _, value = line.partition("=")
                known[f"steps.{step.get('id')}.outputs.{name}"] = value
            code = done.returncode
            said += done.stdout + done.stderr
        job = job or (0 if step.get("continue-on-error") else code)
    return job, {**known, "said": said}


@pytest.fixture
def runner(tmp_path: Path, comment_site: Site) -> dict[str, str]:
    """The environment of a runner, with a program that takes MS ms."""
    program = tmp_path / "perfpipe"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfpipe "$@"\n')
    program.chmod(0o755)
    (tmp_path / "program.py").write_text(
        "import json, os, random\n"
        "ms = float(os.environ['MS']) * random.uniform(1, 1.001)\n"
        "print(json.dumps({'perfpipe': 'time', 'ms': [ms] * 3}))\n"
    )
    (tmp_path / "w.yaml").write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py]\ncollect: {nvml: null}\n"
    )
    return {
        **os.environ,
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_API_URL": comment_site.url,
    }


class Repository:
    """A site's repository where main moves on after a pull request from a fork has begun."""

    def __init__(self, where: Path) -> None:
        self.where, self.work, self.commits = where, where / "work", dict[str, str]()
        self.git(where, "init", "--bare", "-b", "main", "site")
        self.git(where, "clone", "site", "work")
        (self.work / "w.yaml").write_text(
            "version: 1\nname: w\ncommand: ['{python}', program.py]\ncollect: {nvml: null}\n"
        )
        self.commit("first", 10)
        self.commit("began", 10)
        self.git(self.work, "push", "origin", "HEAD:main")
        # The commits of a fork are in the site's repository as those of the pull request.
        self.git(self.work, "checkout", "-b", "nothing")
        self.commit("nothing", 10)
        self.git(self.work, "checkout", "-b", "slower", self.commits["began"])
        self.commit("slower", 12)
        self.git(self.work, "checkout", "-B", "main", self.commits["began"])
        self.commit("main", 9)
        self.git(self.work, "push", "origin", "HEAD:main")
        for name in ("nothing", "slower"):
            self.git(self.work, "checkout", "--detach", "main")
            self.git(self.work, "merge", "-s", "ours", self.commits[name])
            self.git(self.work, "push", "origin", f"HEAD:refs/pull/{name}/merge")

    def git(self, where: Path, *words: str) -> str:
        return subprocess.run(
            ["git", "-C", where, "-c", "user.name=a", "-c", "user.email=a@b", *words],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    def commit(self, name: str, ms: float) -> None:
        (self.work / "program.py").write_text(
            f'print(\'{{"perfpipe": "time", "ms": [{ms}, {ms}]}}\')\n'
        )
        (self.work / f"{name}.txt").write_text(name)
        self.git(self.work, "add", ".")
        self.git(self.work, "commit", "-m", name)
        self.commits[name] = self.git(self.work, "rev-parse", "HEAD")

    def checkout(self, ref: str, *options: str) -> Path:
        """Return what actions/checkout makes; it fetches all branches if it fetches the history."""
        where = self.where / "checkout"
        shutil.rmtree(where, ignore_errors=True)
        self.git(self.where, "init", "checkout")
        self.git(where, "remote", "add", "origin", (self.where / "site").as_uri())
        refs = [f"+{ref}:refs/remotes/{ref.removeprefix('refs/')}"]
        if not options:
            refs.append("+refs/heads/*:refs/remotes/origin/*")
        self.git(where, "fetch", *options, "origin", *refs)
        self.git(where, "checkout", "--detach", f"refs/remotes/{ref.removeprefix('refs/')}")
        return where

    def event(self, name: str) -> dict[str, str]:
        """Return what the event of a pull request says."""
        return {
            "github.event.pull_request.number": "7",
            "github.event.pull_request.base.sha": self.commits["main"],
            "github.event.pull_request.head.sha": self.commits[name],
            "github.event.repository.default_branch": "main",
        }
