/* test_secrets.c: what an event may not carry (E13). The samples are made up and cut in two, so
 * that a scanner that reads this file does not take them for real. */
#include "log/secrets.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define GITHUB_TOKEN \
    "gh"             \
    "p_0123456789abcdefghijABCDEFGHIJ012345"
#define AWS_KEY \
    "AK"        \
    "IAQ7Z3XB5KJ2MW9RTC"
#define JWT_TEXT            \
    "ey"                    \
    "JhbGciOiJIUzI1NiJ9.ey" \
    "JzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3"

static int check(const char *text, const enum ol_secret_mode *modes,
                 struct ol_secret_finding *warning, outlog_err *err)
{
    struct ol_json value;
    size_t bytes = strlen(text);
    char *copy = malloc(bytes); // no byte after it, so that ASan sees a read past the end
    memcpy(copy, text, bytes);
    *err = (outlog_err){0};
    if (ol_json_parse(copy, bytes, &value, err) < 0)
        fail_msg("%s: %s", text, err->message);
    int rc = ol_secrets_check(&value, modes, warning, err);
    free(copy);
    return rc;
}

static void assert_rejected(const char *text, const char *rule, const char *pointer)
{
    char named[64];
    outlog_err err;
    if (check(text, NULL, NULL, &err) == 0)
        fail_msg("passed: %s", text);
    snprintf(named, sizeof named, "(rule %s)", rule);
    assert_int_equal(err.code, OUTLOG_SECRET_MATERIAL);
    assert_non_null(strstr(err.message, named));
    assert_string_equal(err.pointer, pointer);
}

static void assert_warned(const char *text, const char *rule, const char *pointer)
{
    struct ol_secret_finding warning;
    outlog_err err;
    assert_int_equal(check(text, NULL, &warning, &err), 0);
    if (!warning.rule)
        fail_msg("no warning: %s", text);
    assert_string_equal(warning.rule, rule);
    assert_string_equal(warning.pointer, pointer);
}

static void assert_clean(const char *text)
{
    struct ol_secret_finding warning;
    outlog_err err;
    if (check(text, NULL, &warning, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    if (warning.rule)
        fail_msg("%s: warning %s", text, warning.rule);
}

static void e13_private_key_is_refused_by_pointer(void **state)
{
    static const char *const labels[] = {"", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA "};
    char text[256];
    (void)state;
    for (size_t i = 0; i < COUNT(labels); i++) {
        snprintf(text, sizeof text,
                 "{\"tls\":[1,{\"key\":\"-----BEGIN %sPRIVATE "
                 "KEY-----\\nMIIE\"}]}",
                 labels[i]);
        assert_rejected(text, "private_key", "/tls/1/key");
    }
    assert_rejected("{\"k\":\"x -----BEGIN PGP PRIVATE "
                    "KEY BLOCK-----\"}",
                    "private_key", "/k");
    assert_clean("{\"k\":\"-----BEGIN PUBLIC KEY-----\\nMIIB\"}");
    assert_clean("{\"k\":\"-----BEGIN CERTIFICATE-----\"}");
    assert_clean("{\"k\":\"----------------------------------------\"}");
    assert_clean("{\"k\":\"-----BEGIN\"}");
}

static void e13_tokens_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"github_token", GITHUB_TOKEN},
        {"github_token", "gh"
                         "o_0123456789abcdefghijABCDEFGHIJ012345"},
        {"github_token", "gh"
                         "u_0123456789abcdefghijABCDEFGHIJ012345"},
        {"github_token", "gh"
                         "s_0123456789abcdefghijABCDEFGHIJ012345"},
        {"github_token", "gh"
                         "r_0123456789abcdefghijABCDEFGHIJ012345"},
        {"github_pat", "github"
                       "_pat_11ABCDEFG0abcdefghij_x"},
        {"aws_access_key", AWS_KEY},
        {"aws_access_key", "AS"
                           "IAQ7Z3XB5KJ2MW9RTC"},
        {"aws_access_key", "A3"
                           "TXQ7Z3XB5KJ2MW9RTC"},
        {"stripe_live_key", "sk"
                            "_live_4eC39HqLyjWDarjtT1zdp7dc"},
        {"stripe_live_key", "rk"
                            "_live_4eC39HqLyjWDarjtT1zdp7dc"},
        {"slack_token", "xo"
                        "xb-123456789012-abcdefABCDEF"},
        {"slack_token", "xo"
                        "xs-123456789012-abcdefABCDEF"},
        {"google_api_key", "AI"
                           "zaSyA0123456789_abcdefghijklmnop-qrstuv"},
        {"gitlab_token", "gl"
                         "pat-abcdefghij0123456789"},
        {"outlog_token", "ol"
                         "k_k1_0123456789abcdefghijABCDEFGHIJ"},
        {"webhook_secret", "wh"
                           "sec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw"},
        {"webhook_signing_key", "wh"
                                "sk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw"},
    };
    static const char *const frames[] = {"{\"a\":\"%s\"}",
                                         "{\"a\":\"key=%s\"}",
                                         "{\"a\":\"see \\\"%s\\\".\"}",
                                         "{\"a\":\"prod_%s\"}",
                                         "{\"a\":\"\\u00e9%s\"}",
                                         "{\"a\":\"\xc3\xa9%s\"}"};
    char text[256];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t f = 0; f < COUNT(frames); f++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, frames[f], cases[i][1]);
#pragma GCC diagnostic pop
            assert_rejected(text, cases[i][0], "/a");
        }
}

static void e13_words_that_only_resemble_tokens_pass(void **state)
{
    static const char *const texts[] = {
        "{\"task_live_update\":\"risk_live_feed0123456789\"}",
        "{\"a\":\"folk_songs_of_the_north\"}",
        "{\"a\":\"keys begin with sk_live_ or whsec_\"}",
        "{\"a\":\"boroughs_of_london\",\"b\":\"ghp_short\"}",
        "{\"a\":\"sk_test_4eC39HqLyjWDarjtT1zdp7dc\"}",
        "{\"a\":\"AKIAIOSFODNN7EXAMPLE\"}",
        "{\"a\":\"AKIAAAAAAAAAAAAAAAAA\"}",
        "{\"a\":\"AKIA\",\"b\":\"AIza\",\"c\":\"xoxb-\",\"d\":\"glpat-\",\"e\":\"olk_\"}",
        "{\"a\":\"xAKIAQ7Z3XB5KJ2MW9RTC\"}",
        "{\"a\":\"https://example.com/a:b@c\",\"b\":\"mailto:ada@example.com\"}",
        "{\"a\":\"https://example.com:8443/\",\"b\":\"https://user@example.com/\"}",
        "{\"whsec_version_id\":\"7\"}",
        "\"\"",
        "1",
        "null",
        "[]",
        "{}",
        "\"ey\"",
        "\".ey\"",
        "\"://\"",
        "[\"---\"]",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_clean(texts[i]);
}

static void e13_secret_version_id_passes(void **state)
{
    (void)state;
    assert_clean("{\"secret_version_id\":\"v3\"}");
    assert_clean("{\"secret_version_id\":\"projects/7/secrets/db-main/versions/12\"}");
    assert_clean(
        "{\"password_changed_at\":\"2026-01-04T12:05:00Z\",\"token_count\":\"128 of 4096\"}");
    assert_clean("{\"password\":\"\",\"secret\":\"v3\",\"token\":null,\"api_key\":17}");
}

static void e13_escapes_do_not_hide_a_secret(void **state)
{
    (void)state;
    assert_rejected("{\"a\":\"\\u0067\\u0068\\u0070\\u005F0123456789abcdefghijABCDEFGHIJ012345\"}",
                    "github_token", "/a");
    assert_rejected("{\"b\\n\":{\"a\":\"\\u0041KIAQ7Z3XB5KJ2MW9RT\\u0043\"}}", "aws_access_key",
                    "/b\n/a");
    assert_rejected("{\"a\":\"\\u002d----BEGIN PRIVATE "
                    "KEY\\u002d----\"}",
                    "private_key", "/a");
    assert_rejected("{\"a\":\"postgres:\\/\\/app:hunter2@db\"}", "url_password", "/a");
    assert_rejected("{\"pass\\u0077ord\":\"kX9\\u0023mQ2v!Lp7Rz\"}", "password", "/password");
}

/* A quote inside a string must not look like its end. */
static void e13_quotes_in_strings_do_not_make_keys(void **state)
{
    (void)state;
    assert_clean("{\"a\":\"\\\"password\\\": \\\"kX9#mQ2v!Lp7Rz\\\"\"}");
    assert_clean("{\"a\":\"\\u0022password\\u0022:\\u0022kX9#mQ2v!Lp7Rz\\u0022\"}");
    assert_clean("[\"token\",\"kX9#mQ2v!Lp7Rz\"]");
}

static void e13_secret_in_a_key_names_only_its_object(void **state)
{
    outlog_err err;
    (void)state;
    assert_rejected("{\"a\":{\"" GITHUB_TOKEN "\":1}}", "github_token", "/a");
    assert_rejected("{\"" GITHUB_TOKEN "\":1}", "github_token", "");
    check("{\"a\":{\"" GITHUB_TOKEN "\":1}}", NULL, NULL, &err);
    assert_null(strstr(err.message, "0123456789"));
}

static void e13_value_is_never_repeated(void **state)
{
    outlog_err err;
    (void)state;
    check("{\"a\":\"" AWS_KEY "\"}", NULL, NULL, &err);
    assert_null(strstr(err.message, "Q7Z3XB5"));
    assert_string_equal(err.message, "/a holds what looks like secret material (rule "
                                     "aws_access_key): keep it in a secret store and write its "
                                     "version id here");
}

/* The outer key is a secret of a rule that is off; the pointer must not show it all the same. */
static void e13_pointer_never_shows_a_secret_key(void **state)
{
    enum ol_secret_mode modes[32];
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < ol_secret_rule_count; i++)
        modes[i] = ol_secret_rules[i].mode_default;
    modes[ol_secret_rule_by_name("github_token")] = OL_SECRET_OFF;
    modes[ol_secret_rule_by_name("webhook_secret")] = OL_SECRET_WARN;
    assert_int_equal(check("{\"x\":{\"" GITHUB_TOKEN "\":{\"b\":\"" AWS_KEY "\"}}}", modes, NULL,
                           &err),
                     -1);
    assert_string_equal(err.pointer, "/x");
    assert_int_equal(check("{\"wh"
                           "sec_abcd/efgh\":{\"b\":\"" AWS_KEY "\"}}",
                           modes, NULL, &err),
                     -1);
    assert_string_equal(err.pointer, "");
    assert_null(strstr(err.message, "abcd"));
}

static void e13_jwt_url_and_passwords_are_rejected(void **state)
{
    (void)state;
    assert_rejected("{\"auth\":\"Bearer " JWT_TEXT "\"}", "jwt", "/auth");
    assert_rejected("{\"u\":[\"https://user:pa55@example.com/\"]}", "url_password", "/u/0");
    assert_rejected("{\"u\":\"redis://:pa55@cache:6379\"}", "url_password", "/u");
    assert_rejected("{\"a\":{\"Proxy-Authorization\":\"Basic am9l\"}}", "authorization",
                    "/a/Proxy-Authorization");
    static const char *const keys[] = {"password", "Password", "db_password", "userPassword",
                                       "passwd"};
    char text[128], pointer[64];
    for (size_t i = 0; i < COUNT(keys); i++) {
        snprintf(text, sizeof text, "{\"%s\" :\n \"x\"}", keys[i]);
        snprintf(pointer, sizeof pointer, "/%s", keys[i]);
        assert_rejected(text, "password", pointer);
    }
    assert_rejected("{\"clientSecret\":\"aaaabbbb\"}", "client_secret", "/clientSecret");
    assert_clean("{\"password\":\"***\",\"authorization\":\"Bearer ***\",\"passwd\":\"\"}");
    assert_clean("{\"a\":\"eyJ.eyJ.\",\"b\":\"money.eyes.\",\"authorization\":\"granted\"}");
}

static void e13_named_secrets_warn(void **state)
{
    (void)state;
    static const char *const keys[] = {"secret",  "token",       "access_token", "accessToken",
                                       "TOKEN",   "api_key",     "apikey",       "apiKey",
                                       "api-key", "private_key", "privateKey",   "private-key"};
    char text[128], pointer[64];
    for (size_t i = 0; i < COUNT(keys); i++) {
        snprintf(text, sizeof text, "{\"%s\" :\n \"kX9#mQ2v!Lp7Rz\"}", keys[i]);
        snprintf(pointer, sizeof pointer, "/%s", keys[i]);
        assert_warned(text, "named_secret", pointer);
    }
    assert_clean("{\"token\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}");
}

/* The label of a private key has at most 100 bytes; a run without a limit has none. */
static void e13_runs_end_where_their_rule_ends(void **state)
{
    struct ol_buf text = {0};
    (void)state;
    for (int label = 99; label <= 101; label++) {
        ol_buf_reset(&text);
        ol_buf_print(&text, "{\"k\":\"-----BEGIN%*s", label, "");
        ol_buf_text(&text, "PRIVATE "
                           "KEY-----\"}");
        if (label <= 100)
            assert_rejected(text.data, "private_key", "/k");
        else
            assert_clean(text.data);
    }
    for (int bytes = 9; bytes <= 100000; bytes = bytes == 9 ? 10 : bytes * 10) {
        ol_buf_reset(&text);
        ol_buf_text(&text, "{\"k\":\"ey");
        for (int i = 0; i < bytes; i++)
            ol_buf_char(&text, 'J');
        ol_buf_text(&text, ".eyJzdWIiOiIxMjM0.sig\"}");
        if (bytes == 9)
            assert_clean(text.data);
        else
            assert_rejected(text.data, "jwt", "/k");
    }
    ol_buf_clear(&text);
}

static void e13_modes_are_a_setting(void **state)
{
    enum ol_secret_mode modes[32];
    struct ol_secret_finding warning;
    outlog_err err;
    (void)state;
    assert_true(ol_secret_rule_count <= COUNT(modes));
    for (size_t i = 0; i < ol_secret_rule_count; i++)
        modes[i] = OL_SECRET_OFF;
    assert_int_equal(check("{\"a\":\"" AWS_KEY "\"}", modes, &warning, &err), 0);
    assert_null(warning.rule);
    modes[ol_secret_rule_by_name("aws_access_key")] = OL_SECRET_WARN;
    assert_int_equal(check("{\"a\":\"" AWS_KEY "\"}", modes, &warning, &err), 0);
    assert_string_equal(warning.rule, "aws_access_key");
    modes[ol_secret_rule_by_name("jwt")] = OL_SECRET_REJECT;
    assert_int_equal(check("{\"a\":\"" AWS_KEY "\",\"b\":\"" JWT_TEXT "\"}", modes, &warning, &err),
                     -1);
    assert_string_equal(err.pointer, "/b");
    assert_int_equal(ol_secret_rule_by_name("nope"), -1);
}

static void e13_first_warning_is_kept_and_a_later_reject_wins(void **state)
{
    struct ol_secret_finding warning;
    outlog_err err;
    (void)state;
    assert_int_equal(check("{\"token\":\"kX9#mQ2v!Lp7Rz\",\"secret\":\"kX9#mQ2v!Lp7Rz\"}", NULL,
                           &warning, &err),
                     0);
    assert_string_equal(warning.pointer, "/token");
    assert_int_equal(check("{\"token\":\"kX9#mQ2v!Lp7Rz\",\"b\":\"" AWS_KEY "\"}", NULL, &warning,
                           &err),
                     -1);
    assert_string_equal(err.pointer, "/b");
}

/* Texts that would make a careless matcher look at the same bytes again and again. */
static void e13_hostile_texts_stay_linear(void **state)
{
    static const char *const parts[] = {"token ",         "ey-",  ".ey",  "://a:",
                                        "-----BEGIN ",    "olk_", "AKIA", "\\u002eey",
                                        "\\\"token\\\":", "xoxb-"};
    struct ol_buf text = {0};
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < COUNT(parts); i++) {
        ol_buf_reset(&text);
        ol_buf_text(&text, "{\"a\":\"");
        while (text.bytes < 250000)
            ol_buf_text(&text, parts[i]);
        ol_buf_text(&text, "\"}");
        int64_t start = ol_clock_boot_us();
        check(text.data, NULL, NULL, &err);
        assert_true(ol_clock_boot_us() - start < 500000);
    }
    ol_buf_clear(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e13_private_key_is_refused_by_pointer),
        cmocka_unit_test(e13_tokens_are_refused),
        cmocka_unit_test(e13_words_that_only_resemble_tokens_pass),
        cmocka_unit_test(e13_secret_version_id_passes),
        cmocka_unit_test(e13_escapes_do_not_hide_a_secret),
        cmocka_unit_test(e13_quotes_in_strings_do_not_make_keys),
        cmocka_unit_test(e13_secret_in_a_key_names_only_its_object),
        cmocka_unit_test(e13_value_is_never_repeated),
        cmocka_unit_test(e13_pointer_never_shows_a_secret_key),
        cmocka_unit_test(e13_jwt_url_and_passwords_are_rejected),
        cmocka_unit_test(e13_named_secrets_warn),
        cmocka_unit_test(e13_runs_end_where_their_rule_ends),
        cmocka_unit_test(e13_modes_are_a_setting),
        cmocka_unit_test(e13_first_warning_is_kept_and_a_later_reject_wins),
        cmocka_unit_test(e13_hostile_texts_stay_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
