/* What a turn writes: ranges and JSON, without a store (rules 7, 8, 10). */
#include "outbox/lane/lane.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct ol_lane lane; // too large for a stack
static struct ol_turn turn;

static void begin(bool has_gaps, int64_t head)
{
    lane = (struct ol_lane){.has_gaps = has_gaps, .head = head};
    ol_turn_begin(&turn, &lane);
}

static void check_ranges(const struct ol_range *ranges, size_t count,
                         const struct ol_range *expected, size_t expected_count)
{
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ranges[i].from, expected[i].from);
        assert_int_equal(ranges[i].to, expected[i].to);
    }
}
#define CHECK_RANGES(ranges, count, ...)                                \
    check_ranges(ranges, count, (const struct ol_range[]){__VA_ARGS__}, \
                 sizeof((const struct ol_range[]){__VA_ARGS__}) / sizeof(struct ol_range))

static void neighbours_are_one_range(void **state)
{
    (void)state;
    begin(true, 10);
    for (int64_t seq = 11; seq <= 13; seq++)
        ol_turn_cover(&turn, &lane, seq, true);
    CHECK_RANGES(turn.claim, turn.claim_count, {11, 13});
    assert_int_equal(turn.gap_count, 0);
    assert_int_equal(turn.head, 13);
    assert_int_equal(turn.sent_count, 3);
}

static void rule_7_a_number_that_was_missed_becomes_a_gap(void **state)
{
    (void)state;
    begin(true, 10);
    ol_turn_cover(&turn, &lane, 11, true);
    ol_turn_cover(&turn, &lane, 15, false);
    CHECK_RANGES(turn.claim, turn.claim_count, {11, 11}, {15, 15});
    CHECK_RANGES(turn.gaps, turn.gap_count, {12, 14});
    assert_int_equal(turn.sent_count, 1);
}

static void a_store_without_gaps_claims_one_range(void **state)
{
    (void)state;
    begin(false, 10);
    ol_turn_cover(&turn, &lane, 12, true); // 11 was rolled back
    ol_turn_cover(&turn, &lane, 15, true);
    CHECK_RANGES(turn.claim, turn.claim_count, {12, 15});
    assert_int_equal(turn.gap_count, 0);
}

static void rule_10_a_filled_gap_is_split(void **state)
{
    (void)state;
    begin(true, 20);
    lane.gaps[0] = (struct ol_range){5, 9};
    lane.gaps[1] = (struct ol_range){12, 12};
    lane.gap_count = 2;
    ol_turn_gaps(&turn, &lane);
    ol_turn_cover(&turn, &lane, 7, true);
    CHECK_RANGES(turn.gaps, turn.gap_count, {5, 6}, {8, 9}, {12, 12});
    ol_turn_cover(&turn, &lane, 8, true);
    ol_turn_cover(&turn, &lane, 12, true);
    CHECK_RANGES(turn.gaps, turn.gap_count, {5, 6}, {9, 9});
    CHECK_RANGES(turn.claim, turn.claim_count, {7, 8}, {12, 12});
    assert_int_equal(turn.head, 20);
}

static void a_turn_ends_before_it_has_too_many_ranges(void **state)
{
    int64_t seq = 1;
    (void)state;
    begin(true, 0);
    for (; ol_turn_can_cover(&turn, seq); seq += 2)
        ol_turn_cover(&turn, &lane, seq, true);
    assert_in_range(turn.claim_count, OL_LANE_GAPS - 3, OL_LANE_GAPS);
    assert_in_range(turn.gap_count, OL_LANE_GAPS - 3, OL_LANE_GAPS);
}

static void rule_8_planned_rows_are_kept_apart_from_recorded_ones(void **state)
{
    struct ol_claimed_message message = {.seq = 7, .message = {.destination = "d\"1"}};
    struct ol_park_entry entry = {.state = "PENDING", .wait_us = 5};
    (void)state;
    begin(true, 10);
    ol_turn_park(&turn, &message, &entry, true);
    ol_turn_park(&turn, &message, &entry, false);
    assert_int_equal(turn.planned_count, 1);
    assert_int_equal(turn.parked_count, 1);
    assert_string_equal(turn.planned.data,
                        "[{\"seq\":7,\"state\":\"PENDING\",\"held\":false,\"attempts\":0,"
                        "\"unsent\":0,\"wait_us\":5,\"lease_us\":0,\"destination\":\"d\\\"1\","
                        "\"ordering_key\":null,\"available_at\":null,\"last_error\":null}");
    ol_turn_clear(&turn);
}

static void r4_a_success_without_a_response_is_numbers_alone(void **state)
{
    struct ol_claimed_message message = {.seq = 7,
                                         .message = {.attempt = 2},
                                         .started_at = 1000,
                                         .outcome = {.kind = OUTLOG_PUBLISH_OK,
                                                     .status = 204,
                                                     .duration_us = 3000}};
    (void)state;
    begin(true, 10);
    ol_turn_attempt(&turn, &message);
    assert_string_equal(turn.plain_attempts.data, "[[7,2,204,1000,3]");
    assert_int_equal(turn.attempt_count, 0);
    message.outcome.kind = OUTLOG_PUBLISH_UNKNOWN;
    ol_turn_attempt(&turn, &message);
    assert_int_equal(turn.attempt_count, 1);
    assert_non_null(strstr(turn.attempts.data, "\"outcome\":\"unknown\""));
    ol_turn_clear(&turn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_one_range),
        cmocka_unit_test(rule_7_a_number_that_was_missed_becomes_a_gap),
        cmocka_unit_test(a_store_without_gaps_claims_one_range),
        cmocka_unit_test(rule_10_a_filled_gap_is_split),
        cmocka_unit_test(a_turn_ends_before_it_has_too_many_ranges),
        cmocka_unit_test(rule_8_planned_rows_are_kept_apart_from_recorded_ones),
        cmocka_unit_test(r4_a_success_without_a_response_is_numbers_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
