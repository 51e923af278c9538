"""ui, completion: Headbay's neighbours on a desk."""

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

__all__ = ["completion", "ui"]


def ui(
    workload: str | None = None,
    /,
    *,
    open_: Annotated[
        bool,
        Parameter(name="--open", negative=(), show_default=False, help="Open it in the browser."),
    ] = False,
) -> int:
    """Print the address of a workload's page in Temporal's UI, or of the UI itself.

    For example:
        headbay ui last --open

    Args:
        workload: Its id, or `last`.
    """
    from headbay.client.cli.pages import look_for, page

    address = page(workload)
    if workload is not None:
        look_for(workload)
    print(address)
    if open_:
        import webbrowser

        return 0 if webbrowser.open(address) else 1
    return 0


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a completion script.

    For example:
        headbay completion bash > ~/.local/share/bash-completion/completions/headbay
        headbay completion fish > ~/.config/fish/completions/headbay.fish

    Args:
        shell: Whose.
    """
    from headbay.client.cli.app import app

    sys.stdout.write(app.generate_completion(prog_name="headbay", shell=shell))
    return 0
