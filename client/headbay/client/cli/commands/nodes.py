"""node …, queue …: what there is to run on, and who waits for it."""

from typing import Annotated

from cyclopts import Parameter

from headbay.client.cli.output import OutputOption

__all__ = ["cordon", "drain", "list_", "queues", "uncordon"]

Reason = Annotated[str, Parameter(show_default=False, help="Shown beside the node, and kept.")]


def list_(*, output: OutputOption = "table") -> int:
    """List nodes: their state, what they have and what is used of it.

    For example:
        headbay node list
        headbay node list -o json | jq '.nodes[] | select(.state == "lost").name'
    """
    from headbay.client.cli.session import with_client
    from headbay.client.cli.views import show_nodes

    show_nodes(with_client(lambda client: client.nodes()), output)
    return 0


def cordon(node: str, /, *, reason: Reason = "", output: OutputOption = "table") -> int:
    """Give a node no new work; what runs there goes on.

    For example:
        headbay node cordon node-3 --reason "disk swap"

    Args:
        node: Its name, as `headbay node list` shows it.
    """
    from headbay.client.cli.orders import order_node

    return order_node(lambda client: client.cordon(node, reason), node, "cordoned", output)


def uncordon(node: str, /, *, reason: Reason = "", output: OutputOption = "table") -> int:
    """Give a node work again; ends a drain.

    For example:
        headbay node uncordon node-3

    Args:
        node: Its name, as `headbay node list` shows it.
    """
    from headbay.client.cli.orders import order_node

    return order_node(lambda client: client.uncordon(node, reason), node, "takes work", output)


def drain(
    node: str,
    /,
    *,
    deadline: Annotated[
        str | None,
        Parameter(help="End what still runs after 0s, 30s, 10m, …. [default: wait for it]"),
    ] = None,
    reason: Reason = "",
    output: OutputOption = "table",
) -> int:
    """Empty a node.

    It gets no new work; what still runs at the deadline is ended and repeated
    elsewhere, as its `repeat` allows.

    For example:
        headbay node drain node-3 --deadline 10m --reason "new kernel"

    Args:
        node: Its name, as `headbay node list` shows it.
    """
    from headbay.client.cli.orders import order_node
    from headbay.domain.quantity import parse_duration

    seconds = None if deadline is None else -(-parse_duration(deadline) // 1_000)
    return order_node(
        lambda client: client.drain(node, reason, deadline_s=seconds), node, "draining", output
    )


def queues(*, output: OutputOption = "table") -> int:
    """List queues: how many wait and run, and who is next.

    For example:
        headbay queue list
    """
    from headbay.client.cli.session import with_client
    from headbay.client.cli.views import show_queues

    show_queues(with_client(lambda client: client.queues()), output)
    return 0
