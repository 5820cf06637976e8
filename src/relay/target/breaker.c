/* breaker.c: closed, open, half open. */
#include "relay/target/breaker.h"

void ol_breaker_init(struct ol_breaker *breaker, int failures_max, int64_t open_us,
                     int64_t open_max_us)
{
    *breaker = (struct ol_breaker){
        .failures_max = failures_max,
        .open_us = open_us,
        .open_max_us = open_max_us > open_us ? open_max_us : open_us,
        .pause_us = open_us,
    };
}

bool ol_breaker_admit(struct ol_breaker *breaker, int64_t now_us)
{
    if (breaker->state == OL_BREAKER_CLOSED)
        return true;
    if (breaker->state == OL_BREAKER_OPEN) {
        if (now_us < breaker->open_until)
            return false;
        breaker->state = OL_BREAKER_HALF_OPEN;
        breaker->is_probing = false;
    }
    if (breaker->is_probing)
        return false;
    breaker->is_probing = true;
    return true;
}

static void open_breaker(struct ol_breaker *breaker, int64_t now_us)
{
    breaker->state = OL_BREAKER_OPEN;
    breaker->open_until = now_us + breaker->pause_us;
    breaker->is_probing = false;
}

static void note_failure(struct ol_breaker *breaker, int64_t now_us)
{
    switch (breaker->state) {
    case OL_BREAKER_CLOSED:
        if (breaker->failures_max > 0 && ++breaker->failures >= breaker->failures_max)
            open_breaker(breaker, now_us);
        break;
    case OL_BREAKER_OPEN: // sent before it opened: nothing new
        break;
    case OL_BREAKER_HALF_OPEN:
        breaker->pause_us = breaker->pause_us > breaker->open_max_us / 2 ? breaker->open_max_us
                                                                         : breaker->pause_us * 2;
        open_breaker(breaker, now_us);
        break;
    }
}

/* Also while open: the answer to an older attempt proves as much as a probe's. */
static void note_success(struct ol_breaker *breaker)
{
    breaker->state = OL_BREAKER_CLOSED;
    breaker->failures = 0;
    breaker->pause_us = breaker->open_us;
    breaker->is_probing = false;
}

void ol_breaker_note(struct ol_breaker *breaker, const struct outlog_outcome *outcome,
                     int64_t now_us)
{
    switch (outcome->kind) {
    case OUTLOG_PUBLISH_OK:
        note_success(breaker);
        break;
    case OUTLOG_PUBLISH_FAILED:
        if (outcome->is_permanent)
            note_success(breaker);
        else
            note_failure(breaker, now_us);
        break;
    case OUTLOG_PUBLISH_UNKNOWN:
        note_failure(breaker, now_us);
        break;
    case OUTLOG_PUBLISH_RELEASED:
        if (outcome->is_unreached)
            note_failure(breaker, now_us);
        else
            breaker->is_probing = false;
        break;
    }
}

enum ol_breaker_state ol_breaker_state(const struct ol_breaker *breaker, int64_t now_us)
{
    if (breaker->state == OL_BREAKER_OPEN && now_us >= breaker->open_until)
        return OL_BREAKER_HALF_OPEN;
    return breaker->state;
}

int64_t ol_breaker_ready_at(const struct ol_breaker *breaker)
{
    return breaker->state == OL_BREAKER_OPEN ? breaker->open_until : 0;
}

const char *ol_breaker_name(enum ol_breaker_state state)
{
    static const char *const names[] = {"closed", "open", "half_open"};
    return names[state];
}
