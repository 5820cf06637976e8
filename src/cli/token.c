/* token.c: outlog token create|list|revoke. */
#include "cli/cli.h"

#include "auth/token.h"

#include <stdlib.h>
#include <string.h>

struct wish {
    const char *scope, *org_id, *rate;
    double requests; /* a second; 0: any number */
};

static int create(struct ol_cli *cli, outlog *log, const struct wish *wish)
{
    const struct outlog_operator by = {0};
    char secret[OL_TOKEN_TEXT];
    struct ol_buf line = {0};
    struct ol_token token;
    outlog_err err;
    if (ol_token_create(log, wish->scope, wish->org_id, wish->requests, &by, &token, secret, &err) <
        0)
        return ol_cli_report(&err);
    if (cli->json)
        ol_token_json(&token, secret, &line);
    else
        ol_buf_print(&line,
                     "token  %s\nid     %s\nThe token is shown this once; only its hash is kept.",
                     secret, token.id);
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
    return OL_EXIT_DONE;
}

struct listing {
    struct ol_cli *cli;
    size_t count;
};

static void put(void *user, const struct ol_token *token)
{
    static const char *const scopes[] = {"", "read", "append", "admin"};
    struct listing *listing = user;
    struct ol_buf line = {0};
    char used[32];

    if (listing->cli->json) {
        ol_token_json(token, NULL, &line);
    } else {
        if (!listing->count)
            printf("%-36s  %-7s %-16s %-12s %s\n", "ID", "SCOPE", "ORG", "USED", "STATE");
        ol_buf_print(&line, "%s  %-7s ", token->id, scopes[token->scope]);
        ol_cli_put_wide(&line, token->has_org ? token->org_id : "(all)", 16);
        ol_buf_print(&line, " %-12s %s", ol_cli_age(token->last_used_at, used),
                     token->revoked_at ? "revoked" : "valid");
    }
    listing->count++;
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

static int list(struct ol_cli *cli, outlog *log)
{
    struct listing listing = {.cli = cli};
    outlog_err err;
    if (ol_token_each(log, false, put, &listing, &err) < 0)
        return ol_cli_report(&err);
    if (!listing.count && !cli->json)
        printf("no tokens yet; make one with `outlog token create --scope read`\n");
    return OL_EXIT_DONE;
}

static int revoke(struct ol_cli *cli, outlog *log)
{
    const struct outlog_operator by = {0};
    outlog_err err;
    if (cli->argc < 2)
        return ol_cli_usage("token revoke needs the token's id; see outlog token list");
    for (int i = 1; i < cli->argc; i++) {
        if (ol_token_revoke(log, cli->argv[i], &by, &err) < 0)
            return ol_cli_report(&err);
        if (!cli->json)
            printf("token %s is revoked\n", cli->argv[i]);
    }
    return OL_EXIT_DONE;
}

static int check_create(struct wish *wish)
{
    static const char *const scopes[] = {"append", "read", "admin", NULL};
    char *end = NULL;

    if (!wish->scope)
        return ol_cli_usage("token create needs --scope append, read or admin");
    wish->requests = wish->rate ? strtod(wish->rate, &end) : 0;
    if (wish->rate && (wish->requests <= 0 || (*end && strcmp(end, "/s") != 0)))
        return ol_cli_usage("--rate is requests a second, like 100 or 100/s");
    return ol_cli_one_of("scope", wish->scope, scopes);
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {0};
    const struct ol_option options[] = {{"scope", OL_OPTION_STRING, &wish.scope, NULL},
                                        {"org", OL_OPTION_STRING, &wish.org_id, NULL},
                                        {"rate", OL_OPTION_STRING, &wish.rate, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status)
        return status;
    const char *verb = cli->argc ? cli->argv[0] : "list";
    bool is_create = strcmp(verb, "create") == 0, is_revoke = strcmp(verb, "revoke") == 0;
    if (!is_create && !is_revoke && strcmp(verb, "list") != 0)
        return ol_cli_usage("token knows create, list and revoke, not '%s'", verb);
    if (is_create && (status = check_create(&wish)))
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    status = is_create ? create(cli, log, &wish) : is_revoke ? revoke(cli, log) : list(cli, log);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_token = {
    .name = "token",
    .summary = "make, list and revoke tokens of the API",
    .help =
        "usage: outlog token create --scope append|read|admin [--org O] [--rate N/s]\n"
        "       outlog token list\n"
        "       outlog token revoke ID…\n\n"
        "Tokens of the HTTP API. A token is shown once and stored hashed. With --org it sees and writes\n"
        "that org alone; without, every org and what has none. A revoked one ends within 5 seconds.\n\n"
        "  outlog token create --scope append --org acme\n"
        "  outlog token revoke 0197c9a4-6f2e-7c3b-9d1f-2f6f3f0c1a5e\n",
    .run = run,
};
