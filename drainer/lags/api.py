"""``drainer lag`` as a function for programs."""

from __future__ import annotations

from drainer.api import (
    Client,
    OnMessage,
    client_settings,
    in_terms_of_programs,
    log_message,
    noting_hints,
    of_types,
)
from drainer.lags.survey import OVER_S, Lags, survey_groups


@noting_hints()
@of_types()
def lag(
    *, client: Client, group: str = "*", over_s: float = OVER_S, on_message: OnMessage = log_message
) -> Lags:
    """Look twice at groups, and report how far they are behind and whether they catch up.

    No group is joined, and nothing is committed. The call takes a little longer than ``over_s``.

    Args:
        client: as for ``drainer.drain``.
        group: the name of a group, or a pattern such as ``index*``; by default all groups.
        over_s: seconds between the two looks.
        on_message: called with a line of text when the looks begin.

    Raises Refused if there is no such group, and BrokerUnreachable.
    """
    tell = in_terms_of_programs(on_message)
    return survey_groups(client_settings(client), group, over_s, tell=tell)
