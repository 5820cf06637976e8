/* run_command.c: the commands of signals, runs, steps and tools as words and options. The doors are
 * a table: which words, which verb, and which option is which member of its body. */
#include "cli/run_command.h"

#include "runs/command.h"

#include <string.h>

/* Every option there is; a verb takes some of them. */
enum option {
    ORG,
    TYPE,
    DATA,
    CORRELATION,
    SIGNAL,
    VERSION,
    INDEX,
    DURATION,
    CODE,
    MESSAGE,
    REASON,
    CAUSATION,
    NAME,
    TO,
    STEP,
    EFFECT_KEY,
    ORDERING_KEY,
    MAX_ATTEMPTS,
    EXPECT,
    OPTION_COUNT
};

static const char *const names[] = {
    [ORG] = "org",
    [TYPE] = "type",
    [DATA] = "data",
    [CORRELATION] = "correlation",
    [SIGNAL] = "signal",
    [VERSION] = "version",
    [INDEX] = "index",
    [DURATION] = "duration-ms",
    [CODE] = "code",
    [MESSAGE] = "message",
    [REASON] = "reason",
    [CAUSATION] = "causation",
    [NAME] = "name",
    [TO] = "to",
    [STEP] = "step",
    [EFFECT_KEY] = "effect-key",
    [ORDERING_KEY] = "ordering-key",
    [MAX_ATTEMPTS] = "max-attempts",
    [EXPECT] = "expect",
};

#define FAILURE [CODE] = "!error_code", [MESSAGE] = "!error_message"

static const struct form {
    const char *noun, *word; /* `outlog run start`; "" for a noun that needs no word */
    enum ol_run_verb verb;
    const char *members[OPTION_COUNT]; /* with a ! those that must be given */
} forms[] = {
    {"signal",
     "",
     OL_RECEIVE_SIGNAL,
     {[ORG] = "org_id",
      [TYPE] = "!signal_type",
      [DATA] = "payload",
      [CORRELATION] = "correlation_id"}},
    {"run",
     "start",
     OL_START_RUN,
     {[ORG] = "org_id",
      [TYPE] = "!run_type",
      [VERSION] = "!orchestrator_version",
      [SIGNAL] = "signal_id"}},
    {"run", "step", OL_START_STEP, {[TYPE] = "!step_type", [INDEX] = "step_index"}},
    {"run",
     "effect",
     OL_REQUEST_EFFECT,
     {[TYPE] = "!effect_type",
      [TO] = "!destination",
      [DATA] = "!effect_spec",
      [STEP] = "step_id",
      [EFFECT_KEY] = "idempotency_key",
      [ORDERING_KEY] = "ordering_key",
      [MAX_ATTEMPTS] = "max_attempts"}},
    {"run", "checkpoint", OL_CHECKPOINT_RUN, {[DATA] = "!checkpoint_data"}},
    {"run", "complete", OL_COMPLETE_RUN, {0}},
    {"run", "fail", OL_FAIL_RUN, {FAILURE}},
    {"run", "cancel", OL_CANCEL_RUN, {[REASON] = "reason"}},
    {"step", "complete", OL_COMPLETE_STEP, {[DATA] = "!output_result", [DURATION] = "duration_ms"}},
    {"step", "fail", OL_FAIL_STEP, {FAILURE}},
    {"step", "skip", OL_SKIP_STEP, {[REASON] = "reason"}},
    {"step", "retry", OL_RETRY_STEP, {0}},
    {"step", "correct", OL_CORRECT_STEP, {[DATA] = "!output_result", [CAUSATION] = "causation_id"}},
    {"tool", "call", OL_CALL_TOOL, {[NAME] = "!tool_name", [DATA] = "input"}},
    {"tool", "complete", OL_COMPLETE_TOOL, {[DATA] = "result"}},
    {"tool", "fail", OL_FAIL_TOOL, {FAILURE}},
};

static const struct form *find(const char *noun, const char *word)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].noun, noun) == 0 && strcmp(forms[i].word, word) == 0)
            return &forms[i];
    return NULL;
}

/* --- the command line --- */

struct wish {
    const char *values[OPTION_COUNT];
    const char *actor, *request_id, *key;
    bool is_infrastructure;
};

static int read_options(struct ol_cli *cli, struct wish *wish)
{
    struct ol_option options[OPTION_COUNT + 5] = {{0}};
    for (int i = 0; i < OPTION_COUNT; i++)
        options[i] = (struct ol_option){names[i], OL_OPTION_STRING, &wish->values[i], NULL};
    options[OPTION_COUNT] = (struct ol_option){"actor", OL_OPTION_STRING, &wish->actor, NULL};
    options[OPTION_COUNT + 1] =
        (struct ol_option){"request-id", OL_OPTION_STRING, &wish->request_id, NULL};
    options[OPTION_COUNT + 2] = (struct ol_option){"key", OL_OPTION_STRING, &wish->key, NULL};
    options[OPTION_COUNT + 3] =
        (struct ol_option){"infra", OL_OPTION_FLAG, &wish->is_infrastructure, NULL};
    return ol_cli_options(cli, options);
}

static bool is_number(enum option option)
{
    return option == INDEX || option == DURATION || option == MAX_ATTEMPTS || option == EXPECT;
}

/* 0, or the exit status after having said which options are missing. */
static int check_needs(const struct form *form, const struct wish *wish)
{
    struct ol_buf needs = {0};
    bool is_missing = false;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (form->members[i] && *form->members[i] == '!') {
            ol_buf_print(&needs, "%s--%s", needs.bytes ? ", " : "", names[i]);
            is_missing |= !wish->values[i];
        }
    int status = is_missing ? ol_cli_usage("%s%s%s needs %s; see outlog %s --help", form->noun,
                                           *form->word ? " " : "", form->word,
                                           needs.failed ? "more" : needs.data, form->noun)
                            : 0;
    ol_buf_clear(&needs);
    return status;
}

/* A value that is JSON; returns as below. */
static int put_json(struct ol_cli *cli, const char *member, const char *value, struct ol_buf *body)
{
    struct ol_json json;
    outlog_err err, why;
    if (!(value = ol_cli_text_or_file(cli, value)))
        return OL_EXIT_FAILED;
    ol_buf_text(body, value);
    if (ol_json_parse(value, strlen(value), &json, &why) == 0)
        return 0;
    ol_fail(&err, why.code, "%s: %.400s", member, why.message);
    return ol_cli_report(&err);
}

/* The body of the call; returns 0 or the exit status after having said what is wrong. */
static int build_body(struct ol_cli *cli, const struct form *form, const struct wish *wish,
                      struct ol_buf *body)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *member = i == EXPECT ? "expected_seq" : form->members[i];
        const char *value = wish->values[i];
        int status = 0;
        if (!value)
            continue;
        if (!member)
            return ol_cli_usage("%s %s takes no --%s; --help tells what it takes", form->noun,
                                form->word, names[i]);
        member += *member == '!';
        ol_buf_print(body, "%s\"%s\":", body->bytes ? "," : "{", member);
        if (i == DATA) {
            if ((status = put_json(cli, member, value, body)))
                return status;
        } else if (is_number((enum option)i)) {
            if (!*value || value[strspn(value, "0123456789")])
                return ol_cli_usage("--%s takes a whole number, not '%s'", names[i], value);
            ol_buf_text(body, value);
        } else {
            ol_buf_json_text(body, value);
        }
    }
    if (wish->is_infrastructure)
        ol_buf_print(body, "%s\"org_id\":null", body->bytes ? "," : "{");
    ol_buf_text(body, body->bytes ? "}" : "{}");
    return 0;
}

static void print(struct ol_cli *cli, struct ol_buf *answer)
{
    struct ol_json object, id, status;
    struct ol_buf line = {0};
    if (cli->json || ol_json_parse(answer->data, answer->bytes, &object, NULL) < 0) {
        ol_cli_put_line(answer);
        return;
    }
    static const char *const ids[] = {"tool_call_id",     "effect_id", "step_id",
                                      "checkpoint_index", "run_id",    "signal_id"};
    size_t which = 0;
    while (which < 5 && ol_json_get(&object, ids[which]).type == OL_JSON_NONE)
        which++;
    id = ol_json_get(&object, ids[which]);
    status = ol_json_get(&object, "status");
    bool is_text = id.type == OL_JSON_STRING;
    ol_cli_put_safe(&line, id.text + is_text, id.bytes - 2 * (size_t)is_text);
    if (status.type == OL_JSON_STRING) {
        ol_buf_print(&line, "  %s", ol_cli_dim(cli));
        ol_cli_put_safe(&line, status.text + 1, status.bytes - 2);
        ol_buf_text(&line, ol_cli_plain(cli));
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

int ol_cli_command(struct ol_cli *cli, const char *noun)
{
    struct wish wish = {0};
    struct ol_buf body = {0}, answer = {0};
    outlog *log = NULL;
    outlog_tx *tx = NULL;
    outlog_err err;
    int status = read_options(cli, &wish), at = 0;
    if (status)
        return status;
    const struct form *form = find(noun, "");
    if (!form) {
        form = cli->argc ? find(noun, cli->argv[at++]) : NULL;
        if (!form)
            return ol_cli_usage("%s takes a word that says what; `outlog %s --help` lists them",
                                noun, noun);
    }
    const char *target = ol_run_verb_target(form->verb);
    struct ol_run_call call = {.verb = form->verb,
                               .request_id = wish.request_id,
                               .idempotency_key = wish.key};
    if (cli->argc - at != (target ? 1 : 0))
        return ol_cli_usage("%s %s takes %s", noun, form->word,
                            target ? "one id" : "no words, only options");
    if (target)
        call.id = cli->argv[at];
    if ((status = ol_cli_org_or_infra(wish.values[ORG], wish.is_infrastructure)) ||
        (status = ol_cli_actor(cli, wish.actor, &call.actor_type, &call.actor_id)) ||
        (status = check_needs(form, &wish)) || (status = build_body(cli, form, &wish, &body)))
        goto out;
    call.body = body.data;
    call.body_bytes = body.bytes;
    status = OL_EXIT_FAILED;
    if (!(log = ol_cli_open(cli)))
        goto out;
    if (outlog_begin(log, &tx, &err) < 0 || ol_run_command(tx, &call, &answer, NULL, &err) < 0) {
        outlog_rollback(tx);
        ol_cli_report(&err);
    } else if (outlog_commit(tx, &err) < 0) {
        ol_cli_report(&err);
    } else {
        print(cli, &answer);
        status = OL_EXIT_DONE;
    }
out:
    outlog_close(log);
    ol_buf_clear(&body);
    ol_buf_clear(&answer);
    return status;
}
