"""Commands that are imported only when they are called, which keeps --help fast."""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from perfpipe.pipelines.console import say


def load(name: str) -> click.Command:
    """Import perfpipe.pipelines.commands.NAME and return its command."""
    # A module cannot have the name of a keyword.
    module = f"{name}_" if keyword.iskeyword(name) else name
    found = importlib.import_module(f"perfpipe.pipelines.commands.{module}")
    command = getattr(found, f"{name}_command")
    if not isinstance(command, click.Command):
        raise TypeError(f"{found.__name__} has no command")
    return command


class LazyGroup(click.Group):
    """A group that imports a command when it is called.

    `sections` has the one-line help of the listed commands by the title of their section;
    `unlisted` are further commands.  `moved` maps former names to the words that replace them, of
    which the last names the command: a former name still works, with a hint on stderr.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, str]],
        unlisted: Sequence[str] = (),
        moved: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.sections, self.moved = sections, moved or {}
        listed = [name for commands in sections.values() for name in commands]
        self._names = [*listed, *unlisted]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.moved:
            return load(self.moved[cmd_name].split()[-1].lstrip("-"))
        return load(cmd_name) if cmd_name in self._names else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for commands in self.sections.values() for name in commands)
        for title, commands in self.sections.items():
            with formatter.section(title):
                rows = [(name.ljust(width), text) for name, text in commands.items()]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            close = difflib.get_close_matches(args[0], self._names, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        if args[0] in self.moved and not ctx.resilient_parsing:
            path = ctx.command_path
            say(f"'{path} {args[0]}' is now '{path} {self.moved[args[0]]}'")
        return found


class WithViews(click.Command):
    """A command with views: other commands, which take the words if one of them names the view.

    `views` maps such words to the names of the commands.
    """

    def __init__(self, *args: Any, views: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self.views = views

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        named = list(dict.fromkeys(word for word in args if word in self.views))
        if not named:
            return super().make_context(info_name, args, parent, **extra)
        if len(named) > 1:
            raise click.UsageError(f"{' and '.join(named)} exclude each other", parent)
        rest = [word for word in args if word not in named]
        view = load(self.views[named[0]])
        return view.make_context(f"{info_name} {named[0]}", rest, parent, **extra)


def view_flag(name: str, text: str) -> Callable[[Any], Any]:
    """Return the option that names a view, for the help; WithViews reads it."""
    option: Callable[[Any], Any] = click.option(name, is_flag=True, expose_value=False, help=text)
    return option
