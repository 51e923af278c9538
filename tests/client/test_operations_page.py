"""docs/operations.md says what each alarm means, and only what can be typed."""

import argparse
import ast
import importlib.util
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from headbay.client.cli.app import app
from headbay.workers.control.__main__ import parser as control_parser
from headbay.workers.node.__main__ import parser as node_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
LEVELS = {"warning": "warning", "error": "error", "exception": "error", "critical": "error"}
ROW = re.compile(
    r"^\| `([a-z_]+\.[a-z_]+)` \| (warning|error) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
FENCED = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*headbay [^`]+)`")

INSTALL = "headbay.workers.node.install"
INSTALL_OPTIONS = {
    *("--server", "--name", "--pool", "--label"),
    *("--reserve-cpu", "--reserve-memory", "--reserve-tasks"),
    *("--run-as", "--allow-root-user", "--artifacts", "--start"),
}
"""Of `headbay node install`; its own parser is asked where it is there."""


def is_logger(node):
    """Whether an assignment makes a structlog logger."""
    made = node.value if isinstance(node, ast.Assign) else None
    return isinstance(made, ast.Call) and ast.unparse(made.func).endswith("get_logger")


def is_log(call):
    """Whether a call is an alarm of a structlog logger named ``log``."""
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "log"
    )


def alarms():
    """(event, level) of every alarm in the code that runs as a process."""
    found = set()
    for root in ("activities", "workers", "client"):
        for file in (ROOT / root).rglob("*.py"):
            tree = list(ast.walk(ast.parse(file.read_text())))
            for made in filter(is_logger, tree):
                assert ast.unparse(made.targets[0]) == "log", f"{file}: call it log"
            for call in filter(is_log, tree):
                event = call.args[0]
                assert isinstance(event, ast.Constant), f"{file}:{call.lineno}: name it plainly"
                found.add((event.value, LEVELS[call.func.attr]))
    return found


def command_lines():
    """Every `headbay …` of the page as words, without the variables before it."""
    lines = [line for block in FENCED.findall(PAGE) for line in block.splitlines()]
    lines += INLINE.findall(PAGE)
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words and words[0].rpartition("/")[2] == "headbay":
            found.append(tuple(words[1:]))
    return list(dict.fromkeys(found))


def install_parser():
    """The parser of `headbay node install`; until it is there, one with the agreed options."""
    if importlib.util.find_spec(INSTALL) is not None:
        return import_module(f"{INSTALL}.__main__").parser()
    options = argparse.ArgumentParser(prog="headbay node install")
    for name in sorted(INSTALL_OPTIONS):
        flag = name in {"--allow-root-user", "--start"}
        options.add_argument(name, action="store_true" if flag else "store")
    return options


PARSERS = {
    ("worker", "control"): control_parser,
    ("worker", "node"): node_parser,
    ("node", "install"): install_parser,
}


def parse(words):
    """Read a command line as the command itself does, and do nothing.

    Raises:
        CycloptsError: There is no such command or option.
        SystemExit: A worker's parser refused it.
    """
    if words[:1] == ("dev",):
        # Its own parser has subcommands whose names are enough here.
        assert words[1:] in {(), ("start",), ("status",), ("stop",)}
        return
    for prefix, parser in PARSERS.items():
        if words[:2] == prefix:
            parser().parse_args(words[2:])
            return
    command, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    assert command.__module__.startswith("headbay."), f"{words} names a group, not a command"
    inspect.signature(command).bind(*bound.args, **bound.kwargs)


def test_every_alarm_has_one_row_with_its_level_and_no_row_is_of_another():
    rows = ROW.findall(PAGE)
    table = PAGE.split("## What each alarm means")[1]
    assert len(rows) == len(re.findall(r"^\| `", table, re.MULTILINE)), "a row of another form"
    assert sorted((event, level) for event, level, _, _ in rows) == sorted(alarms())


def test_every_row_says_a_meaning_and_what_to_do():
    for event, _, meaning, what in ROW.findall(PAGE):
        assert len(meaning.split()) > 5, event
        assert what.strip(), event
    assert [event for event, *_ in ROW.findall(PAGE)] == sorted(
        event for event, *_ in ROW.findall(PAGE)
    )


def test_the_page_shows_the_commands_that_an_operator_needs():
    shown = {words[:2] for words in command_lines()}
    needed = {("node", "install"), ("node", "drain"), ("node", "cordon"), ("node", "uncordon")}
    assert needed | {("node", "list"), ("worker", "control"), ("worker", "node")} <= shown


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_every_command_line_can_be_typed(words):
    parse(words)


def test_every_option_of_an_installation_is_explained():
    section = PAGE.split("## A second machine")[1].split("\n## ")[0]
    explained = set(re.findall(r"`(--[a-z-]+)`", section))
    assert explained | {"--server"} >= INSTALL_OPTIONS
    known = {option for action in install_parser()._actions for option in action.option_strings}
    assert explained <= known


def test_every_link_of_the_page_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert links
    for link in links:
        assert (ROOT / "docs" / link).exists(), link
