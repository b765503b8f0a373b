"""Comments on a pull request (GitHub) or merge request (GitLab): posted once, then updated."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.gate.outputs import MARKER

#: How long a server may take to answer, s, and the comments per request.
_PATIENCE_S, _PAGE = 30.0, 100


@dataclass(frozen=True)
class Forge:
    """The site of the request: URLs of its comments, and how to update one."""

    comments: str
    comment: str
    update: str
    headers: Mapping[str, str]


def forge(number: int | None = None, env: Mapping[str, str] | None = None) -> Forge:
    """Return the site of this CI job from its variables; raises InputError if they are missing."""
    env = os.environ if env is None else env
    if repository := env.get("GITHUB_REPOSITORY"):
        found = re.fullmatch(r"refs/pull/(\d+)/\w+", env.get("GITHUB_REF", ""))
        number = number or (int(found[1]) if found else None)
        api = f"{env.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{repository}/issues"
        headers = {
            "Authorization": f"Bearer {_token(env, 'GITHUB_TOKEN')}",
            "Accept": "application/vnd.github+json",
        }
        return Forge(
            f"{api}/{_known(number)}/comments", f"{api}/comments", "PATCH", _with_type(headers)
        )
    if project := env.get("CI_PROJECT_ID"):
        number = number or int(env.get("CI_MERGE_REQUEST_IID") or 0) or None
        api = env.get("CI_API_V4_URL", "https://gitlab.com/api/v4")
        notes = f"{api}/projects/{quote(project, '')}/merge_requests/{_known(number)}/notes"
        headers = {"PRIVATE-TOKEN": _token(env, "GITLAB_TOKEN")}
        return Forge(notes, notes, "PUT", _with_type(headers))
    raise InputError("not a CI job of GitHub or GitLab (no GITHUB_REPOSITORY, CI_PROJECT_ID)")


def _known(number: int | None) -> int:
    if number is None:
        raise InputError("this job has no pull request or merge request; name one with --number")
    return number


def _token(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise InputError(f"{name} is not set: a token is needed to post comments")
    return env[name]


def _with_type(headers: Mapping[str, str]) -> dict[str, str]:
    return {**headers, "Content-Type": "application/json", "User-Agent": "perfpipe"}


def post(site: Forge, text: str, name: str) -> str:
    """Post a text, or replace the comment with the same marker; return what was done.

    Raises InputError for a text without a marker, TaskFailed if the site refuses.
    """
    first, _, rest = text.partition("\n")
    if first != MARKER:
        raise InputError(f"not a perfpipe comment: it does not begin with {MARKER}")
    marker = MARKER.replace(" -->", f" {re.sub(r'[^A-Za-z0-9_.-]', '-', name)} -->")
    body = f"{marker}\n{rest}"
    for comment in _comments(site):
        if str(comment.get("body", "")).startswith(marker):
            _ask(site, site.update, f"{site.comment}/{comment['id']}", body)
            return f"updated comment {comment['id']}"
    _ask(site, "POST", site.comments, body)
    return "posted a comment"


def _comments(site: Forge) -> Iterator[dict[str, Any]]:
    for page in itertools.count(1):
        url = f"{site.comments}?per_page={_PAGE}&page={page}"
        found = _ask(site, "GET", url)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise TaskFailed(f"GET {url}: the answer is not a list of comments")
        yield from found
        if len(found) < _PAGE:
            return


def _ask(site: Forge, method: str, url: str, body: str | None = None) -> Any:
    if not url.startswith(("https://", "http://")):
        raise InputError(f"{url}: not a valid site URL")
    data = None if body is None else json.dumps({"body": body}).encode()
    request = Request(url, data, dict(site.headers), method=method)  # noqa: S310
    try:
        with urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            return json.load(answer)
    except HTTPError as error:
        raise TaskFailed(f"{method} {url}: {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise TaskFailed(f"{method} {url}: {error}") from error
