/* token.c: outlog token: creates, lists and revokes tokens of the API. */
#include "cli/cli.h"

#include "auth/token.h"

#include <stdlib.h>
#include <string.h>

struct token_args {
    const char *scope, *org_id, *rate;
    double requests; /* per second; 0: no limit */
};

static int create_token(struct ol_cli *cli, outlog *log, const struct token_args *args)
{
    const struct outlog_operator by = {0};
    char secret[OL_TOKEN_TEXT];
    struct ol_buf line = {0};
    struct ol_token token;
    outlog_err err;
    if (ol_token_create(log, args->scope, args->org_id, args->requests, &by, &token, secret, &err) <
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

struct token_listing {
    struct ol_cli *cli;
    size_t count;
};

static void print_token(void *user, const struct ol_token *token)
{
    static const char *const scopes[] = {"", "read", "append", "admin"};
    struct token_listing *listing = user;
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

static int list_tokens(struct ol_cli *cli, outlog *log)
{
    struct token_listing listing = {.cli = cli};
    outlog_err err;
    if (ol_token_each(log, false, print_token, &listing, &err) < 0)
        return ol_cli_report(&err);
    if (!listing.count && !cli->json)
        printf("no tokens yet; make one with `outlog token create --scope read`\n");
    return OL_EXIT_DONE;
}

static int revoke_tokens(struct ol_cli *cli, outlog *log)
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

static int check_create(struct token_args *args)
{
    static const char *const scopes[] = {"append", "read", "admin", NULL};
    char *end = NULL;

    if (!args->scope)
        return ol_cli_usage("token create needs --scope append, read or admin");
    args->requests = args->rate ? strtod(args->rate, &end) : 0;
    if (args->rate && (args->requests <= 0 || (*end && strcmp(end, "/s") != 0)))
        return ol_cli_usage("--rate is requests per second, like 100 or 100/s");
    return ol_cli_one_of("scope", args->scope, scopes);
}

static int run_token(struct ol_cli *cli)
{
    struct token_args args = {0};
    const struct ol_option options[] = {{"scope", OL_OPTION_STRING, &args.scope, NULL},
                                        {"org", OL_OPTION_STRING, &args.org_id, NULL},
                                        {"rate", OL_OPTION_STRING, &args.rate, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status)
        return status;
    const char *verb = cli->argc ? cli->argv[0] : "list";
    bool is_create = strcmp(verb, "create") == 0, is_revoke = strcmp(verb, "revoke") == 0;
    if (!is_create && !is_revoke && strcmp(verb, "list") != 0)
        return ol_cli_usage("token takes create, list or revoke, not '%s'", verb);
    if (is_create && (status = check_create(&args)))
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    status = is_create   ? create_token(cli, log, &args)
             : is_revoke ? revoke_tokens(cli, log)
                         : list_tokens(cli, log);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_token = {
    .name = "token",
    .summary = "create, list and revoke tokens of the API",
    .help =
        "usage: outlog token create --scope append|read|admin [--org O] [--rate N/s]\n"
        "       outlog token list\n"
        "       outlog token revoke ID…\n\n"
        "Tokens of the HTTP API. A token is shown once and stored hashed. With --org it can read and write\n"
        "only that org; without, every org and the infrastructure. A revoked token stops working within\n"
        "5 seconds.\n\n"
        "  outlog token create --scope append --org acme\n"
        "  outlog token revoke 0197c9a4-6f2e-7c3b-9d1f-2f6f3f0c1a5e\n",
    .run = run_token,
};
