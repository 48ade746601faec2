"""ListTransactions 0-2: the transactional ids that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.patterns import compile_pattern
from millstream.coordinator.transaction.coordinator import TransactionFilter
from millstream.coordinator.transaction.metadata import TransactionState as State
from millstream.errors import ApiError
from millstream.protocol.messages.list_transactions import (
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.coordinator.transaction.metadata import TransactionMetadata
    from millstream.protocol.messages.list_transactions import ListTransactionsRequest
    from millstream.server.exchange import Exchange

_STATES: Final = frozenset(state.title for state in State)


def handle_list_transactions(
    request: ListTransactionsRequest, exchange: Exchange, transactions: TransactionCoordinator
) -> None:
    """Those that the filters admit. States that nobody knows are named in the answer."""
    asked = dict.fromkeys(request.state_filters)
    unknown = [each for each in asked if each not in _STATES]

    def listed(found: list[TransactionMetadata] | ApiError) -> None:
        if isinstance(found, ApiError):
            exchange.answer(fail_list_transactions(request, found, exchange.version))
            return
        exchange.answer(
            ListTransactionsResponse(
                unknown_state_filters=unknown,
                transaction_states=[
                    TransactionState(
                        transactional_id=each.transactional_id,
                        producer_id=each.producer_id,
                        transaction_state=each.state.title,
                    )
                    for each in found
                ],
            )
        )

    if asked and len(unknown) == len(asked):
        listed([])
        return
    transactions.list(
        TransactionFilter(
            frozenset(request.state_filters) & _STATES,
            frozenset(request.producer_id_filters),
            request.duration_filter,
            _matcher(request.transactional_id_pattern),
        ),
        listed,
    )


def fail_list_transactions(
    request: ListTransactionsRequest, error: ApiError, version: int
) -> ListTransactionsResponse:
    """The answer without a list."""
    return ListTransactionsResponse(error_code=error.code)


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda _: True
    compiled = compile_pattern(pattern)
    return lambda text: compiled.fullmatch(text) is not None
