"""Registers Headbay's search attributes; an unknown one would fail every start.

Source: a visibility store on SQL allows at most three attributes of each scalar type.
"""

import structlog
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

__all__ = ["SEARCH_ATTRIBUTES", "register_search_attributes"]

log = structlog.get_logger(__name__)

SEARCH_ATTRIBUTES = {
    "HeadbayPool": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "HeadbayQueue": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "HeadbayName": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "HeadbayLabels": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "HeadbayPriority": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "HeadbayTicket": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}


async def register_search_attributes(client: Client) -> None:
    """Register what is missing; two workers doing it at once is fine."""
    listed = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = {n: t for n, t in SEARCH_ATTRIBUTES.items() if n not in listed.custom_attributes}
    if not missing:
        return
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
    log.info("search_attributes.registered", names=sorted(missing))
