"""doctor: is everything there?"""

from headbay.client.cli.output import OutputOption

__all__ = ["doctor"]


def doctor(*, output: OutputOption = "table") -> int:
    """Check everything that Headbay needs, and say what to do about what is missing.

    Looks at Python and packages, the state directory and its disk, Temporal, its
    search attributes, control workers, pool and nodes, and the ledger. Changes
    nothing. Exit code 1 if a check fails.

    For example:
        headbay doctor
        headbay doctor -o json | jq '.checks[] | select(.state == "failed")'
    """
    from headbay.client.cli.diagnosis import diagnose
    from headbay.client.cli.views import show_diagnosis

    found = diagnose()
    show_diagnosis(found, output)
    return 0 if found.healthy else 1
