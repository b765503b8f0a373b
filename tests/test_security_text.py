"""Names that programs and files chose stay text, wherever they are shown: contexts x payloads."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import Cli
from rich.console import Console

from perfpipe.paths import is_plain
from perfpipe.picture import Capture, Label, Lane, Panel, Phase, Picture, Slice, Span, View
from perfpipe.pipelines import console, junit
from perfpipe.pipelines.commands.query import _as_csv, _as_table
from perfpipe.pipelines.program import name_of
from perfpipe.pipelines.reporting import to_json
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.templates.closing import closing_lines
from perfpipe.templates.index_page import Entry, Summary, render_index
from perfpipe.templates.policy import policy
from perfpipe.templates.renderers import (
    figure_files,
    print_terminal,
    render_html,
    render_markdown,
    slug,
    text_of,
)
from perfpipe.viewmodel import (
    Action,
    Budget,
    Column,
    Fact,
    Finding,
    Opening,
    Recommendation,
    Report,
    Section,
    Source,
    Table,
    Tile,
)
from perfpipe.visible import shown, visible, visible_line

PAYLOADS = {
    "script": "k</script><script>alert(1)</script>",
    "attribute": "x\" onmouseover=\"alert(1)\" y='",
    "image": "<img src=x onerror=alert(1)>",
    "style": "</style><style>*{display:none}</style>",
    "svg": "</title></svg><svg onload=alert(1)>",
    "comment": "--><!-- <![CDATA[ ]]>",
    "template": "{{ 7 * 7 }}{% raw %}${7*7}",
    "link": "[click](javascript:alert(1)) ![x](http://evil.example/x.png)",
    "table": "a|b\n|---|\n| c |",
    "code": "`a` ```b``` ~~~",
    "heading": "# a\n- b\n> c",
    "escape": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "hyperlink": "\x1b]8;;http://evil.example\x1b\\text\x1b]8;;\x1b\\",
    "c1": "\x9b31m\x90q\x9c\x85",
    "direction": "a\u202eb\u2066c\u200fd\u061ce",
    "lines": "a\r\nb\x0bc\x0cd\u2028e",
    "nul": "a\x00b\x7fc\x08d",
    "markup": "[bold red]x[/bold red] [link=http://evil.example]y[/link]",
    "formula": "=cmd|' /C calc'!A0",
    "surrogate": "a\udc80b",
    "path": "../../../etc/passwd",
    "entity": "&lt;b&gt; &#60;script&#62; &amp;",
}  # fmt: skip

#: What a terminal would obey.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _report(name: str) -> Report:
    """Return a report with a name in every place for one."""
    source = Source("kernel_sol", (name,))
    fact = Fact(name, name, source)
    columns = (
        Column("kernel_name", "Kernel", "text"),
        Column("lines", "Log", "lines"),
        Column("time", "Time", "ns"),
        Column("hover", "Hover", "text", hover_of="kernel_name"),
        Column("link", "Link", "text", link_of="lines"),
        Column("bound", name, "text", doc=name, unit=name),
    )
    row = (name, f"{name}\n{name}", 1.5, name, name, name)
    table = Table("Kernels", name, columns, (row, row), 2, source, headline=1)
    label = Label(name, "compute", name, name)
    lane = Lane(name, "stream", (Slice(0, 10, 0),))
    span = Span(0, 10)
    phases = (Phase("steady", span, 1),)
    capture = Capture(name, span, phases, (50.0,), (("median", span),))
    opening = Opening(
        fact,
        fact,
        (Tile(name, name, name, source),),
        (Action(name, name, name, name, name, source),),
        budgets=(Budget(name, (("compute", 60.0), ("sync", 40.0)), source),),
    )
    return Report(
        title=name,
        notice=name,
        statements=(fact,),
        summary=(fact,),
        sections=(Section("kernels", "Kernels", (table,), name),),
        findings=(Finding(name, name, 1.0, name, name, name, name, source, name, name),),
        findings_total=1,
        nothing_found="",
        recommendations=(
            Recommendation(
                1, name, name, name, name, name, "https://docs.nvidia.com", name, source
            ),
        ),
        warnings=(fact,),
        gaps=(fact,),
        provenance=(fact,),
        opening=opening,
        picture=Picture((View(name, (Panel(name, 10, (lane,), name),)),), (label,), (capture,)),
    )


class _Page(HTMLParser):
    """What a browser makes of a page: elements, attributes, scripts, styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self._in = tag if tag in self.inline and ("type", "text/plain") not in attrs else ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.inline[self._in].append(data)
            self._in = ""


PLAIN = _Page(render_html(_report("plain")))


def _html(name: str) -> str:
    text = render_html(_report(name))
    page = _Page(text)
    assert page.tags == PLAIN.tags
    assert page.attributes == PLAIN.attributes
    assert page.inline == PLAIN.inline
    assert not [name for name in page.attributes if name.startswith("on")]
    assert all(re.match(r"#|https://docs\.nvidia\.com|(?!\w+:)(?!/)", link) for link in page.links)
    return text


def _index(name: str) -> str:
    run = RunRecord("run", name, "all", name, status=name)
    entries = [Entry("run.html", run, Summary.of(_report(name)), (), None)]
    other = replace(run, workload="p", status="s")
    plain = [Entry("run.html", other, Summary.of(_report("p")), (), None)]
    text = render_index(entries)
    assert _Page(text).tags == _Page(render_index(plain)).tags
    return text


def _markdown(name: str) -> str:
    text = render_markdown(_report(name))
    bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)
    bare = re.sub(r"\\.", "", bare)
    own = re.sub(r"\\.", "", render_markdown(_report("plain")))
    for sign in ("<script", "<img", "<style", "<svg", "<!--", "](javascript", "](http://evil"):
        assert sign not in bare
    assert bare.count("<") == re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", own).count("<")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == len([line for line in own.splitlines() if line.startswith("|")])
    return text


def _terminal(name: str) -> str:
    out = io.StringIO()
    print_terminal(_report(name), Console(file=out, width=200, force_terminal=False))
    return out.getvalue()


def _colours(name: str) -> str:
    text = "\n".join(closing_lines(_report(name), ["r.html"], colour=True))
    return re.sub(r"\x1b\[(?:38;2;\d+;\d+;\d+|0|39)?m", "", text)


def _query_table(name: str) -> str:
    return "".join(_as_table([name], [(name,), (1.5,)], limit=40))


def _query_csv(name: str) -> str:
    text = "".join(_as_csv([name], [(name,), ("-1",), ("@x",), (-1.5,)]))
    rows = list(csv.reader(io.StringIO(text.replace("\x00", ""), newline="")))
    assert len(rows) == 5
    for (cell,) in rows[:4]:
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert rows[4] == ["-1.5"], "a number is no formula"
    assert name.replace("\x00", "").lstrip("=") in rows[1][0]
    return ""


def _junit(name: str) -> str:
    case = junit.Case(name, name, 1.0, junit.Outcome.FAILURE, "kind", name, name)
    text = junit.xml(name, [junit.Suite(name, [case])])
    root = ElementTree.fromstring(text.encode("utf-8", "replace"))
    assert [element.tag for element in root.iter()] == [
        "testsuites", "testsuite", "testcase", "failure"]  # fmt: skip
    return ""


def _json(name: str) -> str:
    document = json.loads(to_json(_report(name)))
    assert document["title"] == visible(name)
    return ""


def _names(name: str) -> str:
    made = name_of([name or "x"])
    assert is_plain(made)
    assert re.fullmatch("[A-Za-z0-9_.-]+", made)
    assert re.fullmatch("[a-z0-9-]*", slug(name))
    for file in figure_files(_report(name), "svg"):
        assert is_plain(file)
    return ""


def _figures(name: str) -> str:
    for content in figure_files(_report(name), "svg").values():
        root = ElementTree.fromstring(content)
        assert not [one for one in root.iter() if one.tag.endswith(("script", "foreignObject"))]
    return ""


CONTEXTS: dict[str, Callable[[str], str]] = {
    one.__name__.strip("_"): one
    for one in (_html, _index, _markdown, _terminal, _colours, _query_table, _query_csv, _junit,
                _json, _names, _figures)
}  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_hostile_name_stays_text(context: str, payload: str) -> None:
    text = CONTEXTS[context](PAYLOADS[payload])
    assert not OBEYED.findall(text)
    text.encode()


def test_messages_and_errors_are_spelled_out(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    for payload in PAYLOADS.values():
        console.say(payload)
    assert not OBEYED.findall(capsys.readouterr().err)
    for payload in ("escape", "direction", "lines", "c1"):
        assert cli("report", PAYLOADS[payload], "--store", "x\x1b[31m") == 2
        assert cli("ingest", PAYLOADS[payload]) == 2
        assert not OBEYED.findall(cli.err)
        assert cli.err.count("\n") == 1


def test_text_of_many_languages_is_shown_as_it_is() -> None:
    for text in ("größe ∞ µs", "日本語", "кириллица", "a\u00a0b", "emoji 🚀", "a\tb\nc"):
        assert visible(text).replace("\u00a0", " ") == text.replace("\u00a0", " ")
    assert visible_line("a\nb\tc") == "a\\nb\\tc"


def test_a_page_runs_its_own_parts_and_loads_nothing() -> None:
    text = render_html(_report("plain"))
    (stated,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.split(" ", 1) for rule in stated.replace("&#39;", "'").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind, rule in (("script", "script-src"), ("style", "style-src-elem")):
        digests = [
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in PLAIN.inline[kind]
        ]
        assert digests
        assert set(digests) == set(rules[rule].split())
        assert "unsafe" not in rules[rule]
    assert text.index("Content-Security-Policy") < text.index("<style")
    assert "Content-Security-Policy" in _index("x")


def test_the_policy_knows_the_parts_and_not_the_page() -> None:
    """Digests are of the files of the package: a script that a name brought has none."""
    js = text_of("report.js")
    assert policy([], [js]) == policy([], [js, js])
    assert policy(["a"], ["b"]) != policy(["a"], ["c"])
    assert "script-src 'none'" in policy(["a"], [])
    styled = policy([], [], ["<svg><defs><style type='x'>*{a:b}</style></defs></svg>"])
    assert "style-src-elem 'sha256-" in styled


def test_names_of_a_store_are_shown_and_kept(
    edited: Callable[..., Path], cli: Cli, tmp_path: Path, made_once: None
) -> None:
    hostile = PAYLOADS["escape"] + PAYLOADS["direction"]
    path = edited("h2d", f"UPDATE NVTX_EVENTS SET text = '{hostile}', textId = NULL")
    odd = path.rename(path.with_name("h\x1b[31m\u202e.sqlite"))
    assert cli("ingest", odd) == 0, cli.err
    assert not OBEYED.findall(cli.out + cli.err)
    for words in (("store", "ls"), ("report", "--all"), ("report", "--md", "-"),
                  ("query", "SELECT DISTINCT name FROM nsys_nvtx_ranges")):  # fmt: skip
        assert cli(*words) == 0, cli.err
        assert not OBEYED.findall(cli.out)
    (manifest,) = Store(tmp_path / "store").manifests()
    assert manifest.source_name == odd.name, "the store has the name as it is"


def test_a_name_of_any_length_fills_no_page() -> None:
    """What is left of two names that begin alike still differs."""
    one, other = (shown(("k" * 10_000_000 + end,))[0] for end in "ab")
    assert one != other
    assert len(one) < 51_000
    assert "10,000,001 characters" in one
    assert shown("k" * 50_000) == "k" * 50_000
