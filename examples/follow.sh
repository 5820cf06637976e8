#!/bin/bash
# A consumer in a few lines of shell: it processes each event and then commits its cursor, so that
# after a crash it continues where it stopped. Needs jq.
#
#     OUTLOG_STORE=sqlite:app.db ./follow.sh [EVENTS]        ends after EVENTS events; never without
set -euo pipefail
left=${1:-0}

outlog consumers create mailer --type order.created >/dev/null # a repeat changes nothing
while true; do
    # Reading does not move the cursor. --wait: returns as soon as there are events, at the latest after 5 s.
    events=$(outlog consumers read mailer --limit 10 --wait 5 --json)
    [ -n "$events" ] || continue
    while read -r event; do
        jq -r '"mail for \(.aggregate_id): thank you, \(.payload.total) EUR"' <<<"$event"
        outlog consumers commit mailer "$(jq .event_id <<<"$event")" >/dev/null
        left=$((left - 1))
        [ "$left" -ne 0 ] || exit 0
    done <<<"$events"
done
