#!/bin/bash
# A consumer in a few lines of shell: it processes each event and then moves its cursor, so that
# after a crash it goes on where it stopped. Needs jq.
#
#     OUTLOG_STORE=sqlite:app.db ./follow.sh [EVENTS]        ends after so many; without: never
set -euo pipefail
left=${1:-0}

outlog consumers create mailer --type order.created >/dev/null # a repeat changes nothing
while true; do
    # Reading moves nothing. --wait: come back at once when there is something, else after 5 s.
    events=$(outlog consumers read mailer --limit 10 --wait 5 --json)
    [ -n "$events" ] || continue
    while read -r event; do
        jq -r '"mail for \(.aggregate_id): thank you, \(.payload.total) EUR"' <<<"$event"
        outlog consumers commit mailer "$(jq .event_id <<<"$event")" >/dev/null
        left=$((left - 1))
        [ "$left" -ne 0 ] || exit 0
    done <<<"$events"
done
