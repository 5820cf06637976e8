/* The SSRF guard: URLs and addresses. */
#include "net/ssrf_guard.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *range_of(const char *text)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return ol_ssrf_guard_address((struct sockaddr *)&four, sizeof four);
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return ol_ssrf_guard_address((struct sockaddr *)&six, sizeof six);
}

static void d1_public_addresses_pass(void **state)
{
    static const char *const public[] = {"1.1.1.1",         "8.8.8.8",         "9.255.255.255",
                                         "11.0.0.0",        "100.63.255.255",  "100.128.0.0",
                                         "126.255.255.255", "128.0.0.1",       "169.253.255.255",
                                         "169.255.0.0",     "172.15.255.255",  "172.32.0.0",
                                         "192.0.1.0",       "192.0.3.0",       "192.167.255.255",
                                         "192.169.0.0",     "198.17.255.255",  "198.20.0.0",
                                         "223.255.255.255", "168.63.129.15",   "2606:4700::1111",
                                         "2a00:1450::1",    "2001:200::1",     "2400::1",
                                         "::ffff:8.8.8.8",  "64:ff9b::8.8.8.8"};
    (void)state;
    for (size_t i = 0; i < sizeof public / sizeof *public; i++)
        if (range_of(public[i]))
            fail_msg("%s is classified as %s", public[i], range_of(public[i]));
}

static void d1_inside_addresses_are_refused(void **state)
{
    static const char *const inside[] = {"0.0.0.0",
                                         "0.255.255.255",
                                         "10.0.0.1",
                                         "10.255.255.255",
                                         "100.64.0.0",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.255.255",
                                         "169.254.169.254",
                                         "172.16.0.0",
                                         "172.31.255.255",
                                         "192.0.0.1",
                                         "192.0.2.1",
                                         "192.88.99.1",
                                         "192.168.1.1",
                                         "198.18.0.0",
                                         "198.19.255.255",
                                         "198.51.100.7",
                                         "203.0.113.9",
                                         "224.0.0.1",
                                         "239.1.2.3",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "168.63.129.16",
                                         "::",
                                         "::1",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.1.2.3",
                                         "64:ff9b::7f00:1",
                                         "fe80::1",
                                         "febf::1",
                                         "fc00::1",
                                         "fd12:3456::1",
                                         "ff02::1",
                                         "2001::1",
                                         "2001:db8::1",
                                         "2002:7f00:1::",
                                         "3fff:fff::1",
                                         "4000::1",
                                         "100::1",
                                         "::7f00:1",
                                         "fec0::1",
                                         "5f00::1"};
    (void)state;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (!range_of(inside[i]))
            fail_msg("%s passed", inside[i]);
}

static void d1_other_families_are_refused(void **state)
{
    struct sockaddr local = {.sa_family = AF_UNIX};
    struct sockaddr_in four = {.sin_family = AF_INET};
    (void)state;
    assert_non_null(ol_ssrf_guard_address(&local, sizeof local));
    assert_non_null(ol_ssrf_guard_address((struct sockaddr *)&four, 4)); // cut short
}

static void d1_plain_urls_pass(void **state)
{
    struct ol_parsed_url url;
    outlog_err err;
    (void)state;
    assert_int_equal(ol_ssrf_guard_url("https://Billing.Example/hooks?a=1@2:3", false, &url, &err),
                     0);
    assert_string_equal(url.host, "billing.example");
    assert_int_equal(url.port, 443);
    assert_int_equal(ol_ssrf_guard_url("HTTPS://a_b.c-d.example:443", false, &url, &err), 0);
    assert_int_equal(ol_ssrf_guard_url("https://8.8.8.8/", false, &url, &err), 0);
    assert_true(url.is_address);
    assert_int_equal(ol_ssrf_guard_url("https://[2606:4700::1111]/x", false, &url, &err), 0);
    assert_string_equal(url.host, "2606:4700::1111");
    assert_int_equal(ol_ssrf_guard_url("https://xn--bcher-kva.example/", false, &url, &err), 0);
    assert_int_equal(ol_ssrf_guard_url("https://1a.2b.example", false, &url, &err), 0);
}

static void d1_tricky_urls_are_refused(void **state)
{
    static const char *const tricky[] = {
        "",
        "https://",
        "https:///x",
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "example.com",
        "https:/example.com",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://@example.com/",
        "https://example.com:80/",
        "https://example.com:8443/",
        "https://example.com:/",
        "https://example.com:0443/",
        "https://example.com:443x/",
        "https://example.com:99999/",
        "https://example.com#frag",
        "https://exa mple.com/",
        "https://example.com/a b",
        "https://example.com\\@evil.example/",
        "https://example.com/\r\nX: y",
        "https://exa%6dple.com/",
        "https://b\xc3\xbc.example/",
        "https://example..com/",
        "https://.example.com/",
        "https://example.com./",
        "https://-a.example/",
        "https://a-.example/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://010.8.8.8/",
        "https://8.8.8.8.8/",
        "https://8.8.8/",
        "https://foo.0x10/",
        "https://1.2.3.999/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1%eth0]/",
        "https://[2606:4700::1111/",
        "https://[2606:4700::1111]x/",
        "https://[2606:4700::1111]:/",
        "https://[]/",
        "https://[8.8.8.8]/",
        "https://169.254.169.254/latest/meta-data",
        "https://example.com,evil.example/",
        "https://a;b/",
        "https://*/",
    };
    struct ol_parsed_url url;
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < sizeof tricky / sizeof *tricky; i++) {
        if (ol_ssrf_guard_url(tricky[i], false, &url, &err) == 0)
            fail_msg("%s passed", tricky[i]);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_string_equal(err.pointer, "/url");
    }
}

static void d1_allow_private_opens_scheme_port_and_address(void **state)
{
    struct ol_parsed_url url;
    outlog_err err;
    (void)state;
    assert_int_equal(ol_ssrf_guard_url("http://127.0.0.1:8080/x", true, &url, &err), 0);
    assert_int_equal(url.port, 8080);
    assert_false(url.is_https);
    assert_int_equal(ol_ssrf_guard_url("http://localhost", true, &url, &err), 0);
    assert_int_equal(url.port, 80);
    assert_int_equal(ol_ssrf_guard_url("https://[::1]:8443/", true, &url, &err), 0);
    /* … and nothing else */
    assert_int_equal(ol_ssrf_guard_url("http://127.1/", true, &url, &err), -1);
    assert_int_equal(ol_ssrf_guard_url("http://u@localhost/", true, &url, &err), -1);
    assert_int_equal(ol_ssrf_guard_url("ftp://localhost/", true, &url, &err), -1);
}

static void d1_allow_hosts_is_exact_or_below_a_star(void **state)
{
    static const char *const allowed[] = {"api.example.com", "*.customer.example"};
    (void)state;
    assert_true(ol_ssrf_guard_host_is_listed("api.example.com", allowed, 2));
    assert_true(ol_ssrf_guard_host_is_listed("a.b.customer.example", allowed, 2));
    assert_false(ol_ssrf_guard_host_is_listed("customer.example", allowed, 2));
    assert_false(ol_ssrf_guard_host_is_listed("evilcustomer.example", allowed, 2));
    assert_false(ol_ssrf_guard_host_is_listed("xapi.example.com", allowed, 2));
    assert_false(ol_ssrf_guard_host_is_listed("api.example.com.evil.example", allowed, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d1_public_addresses_pass),
        cmocka_unit_test(d1_inside_addresses_are_refused),
        cmocka_unit_test(d1_other_families_are_refused),
        cmocka_unit_test(d1_plain_urls_pass),
        cmocka_unit_test(d1_tricky_urls_are_refused),
        cmocka_unit_test(d1_allow_private_opens_scheme_port_and_address),
        cmocka_unit_test(d1_allow_hosts_is_exact_or_below_a_star),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
