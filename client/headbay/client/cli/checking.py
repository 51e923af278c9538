"""Checks documents, and writes a first one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headbay.client.cli.console import clean, say
from headbay.client.cli.exits import FAILED, OK, REFUSED
from headbay.client.cli.files import STDIN, source_of
from headbay.client.cli.output import Output, emit
from headbay.client.cli.problems import BadCommandLineError
from headbay.client.models import Validated, ValidatedFile
from headbay.client.submission import prepare
from headbay.domain.document import DocumentRefusedError
from headbay.domain.operation import WorkloadContext

if TYPE_CHECKING:
    from headbay.domain.document import Problem

__all__ = ["TEMPLATE", "validate_files", "write_template"]

TEMPLATE: Final = """\
# A workload: steps that run on nodes, under admission and limits.
# Check it with `headbay validate {file}`, run it with `headbay run {file}`.
name: {name}
# labels: {{team: web}}          # find it again: headbay list -l team=web
# priority: 10                 # higher goes first

steps:
- name: build
  run: |                       # a string runs in bash -eo pipefail; a list is a command line
    mkdir -p out
    echo "built by $(hostname)" > out/result.txt
  artifacts: [out/*]           # kept; dependents see them under inputs/build/

- name: test
  dependsOn: build
  matrix: {{SHARD: ["1", "2"]}}  # one task for each value, which becomes environment
  resources: {{cpu: 1, memory: 512Mi}}
  timeout: 5m
  # retry: {{maxAttempts: 3}}    # a failed attempt is followed by another
  run: echo "shard $SHARD tests $(cat inputs/build/out/result.txt)"

- name: publish
  dependsOn: test              # waits for every task of the matrix
  repeat: never                # if nobody knows whether it ran, a person decides
  run: echo "published"
"""


def validate_files(files: Sequence[Path], output: Output) -> int:
    """Check each; 2 if any is refused."""
    if not files:
        raise BadCommandLineError("no file to validate; name one, or - for standard input")
    checked = [_check(file) for file in files]
    found = Validated(files=[report for report, _ in checked])
    for report, problems in checked:
        for problem in problems:
            # For eyes they are messages; programs find them in the JSON.
            if output == "table":
                kind = "warning: " if report.valid else ""
                print(kind + clean(problem.text(report.file)), file=sys.stderr)
    emit(
        found,
        output,
        table=lambda: [
            f"{report.file}: valid, {report.name}, {report.steps} steps"
            for report in found.files
            if report.valid
        ],
        rows=found.files,
        quiet=[report.file for report in found.files if not report.valid],
    )
    return OK if all(report.valid for report in found.files) else REFUSED


def _check(file: Path) -> "tuple[ValidatedFile, list[Problem]]":
    name = "standard input" if file == STDIN else str(file)
    try:
        submission = prepare(source_of(file), WorkloadContext())
    except DocumentRefusedError as error:
        problems = [problem.model_dump(mode="json") for problem in error.problems]
        return ValidatedFile(file=name, valid=False, problems=problems), error.problems
    return (
        ValidatedFile(
            file=name,
            valid=True,
            name=submission.dag.name,
            steps=len(submission.dag.steps),
            digest=submission.digest,
            warnings=[problem.model_dump(mode="json") for problem in submission.warnings],
        ),
        list(submission.warnings),
    )


def write_template(file: Path) -> int:
    """Write a first document; 1 if the file is there already."""
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(TEMPLATE.format(file=file, name=_name(file)))
    except FileExistsError:
        say(f"{file} is there already and was left alone; name another file", kind="error")
        return FAILED
    except OSError as error:
        say(f"{file} cannot be written: {error.strerror}; name another file", kind="error")
        return FAILED
    say(f"wrote {file}; next: headbay run {file}")
    return OK


def _name(file: Path) -> str:
    from headbay.client.cli.intake import step_name

    name = step_name(file.resolve().parent.name if file.stem == "headbay" else file.stem)
    plain = name[0].isalpha() and name not in ("null", "true", "false")
    return name if plain else f'"{name}"'
