"""validate, init: work on documents, without a server."""

from pathlib import Path

from headbay.client.cli.output import OutputOption

__all__ = ["init", "validate"]


def validate(*files: Path, output: OutputOption = "table") -> int:
    """Check workload documents; needs no server.

    Every problem is printed as `file:line: path: message; fix`. Exit code 2 if there is any.

    For example:
        headbay validate ci.yaml examples/*.yaml
        generate-workload | headbay validate -

    Args:
        files: YAML or JSON documents; - reads standard input.
    """
    from headbay.client.cli.checking import validate_files

    return validate_files(files, output)


def init(file: Path = Path("headbay.yaml"), /) -> int:
    """Write a small commented workload to start from; never overwrites.

    For example:
        headbay init
        headbay init nightly.yaml && headbay run nightly.yaml

    Args:
        file: Where to.
    """
    from headbay.client.cli.checking import write_template

    return write_template(file)
