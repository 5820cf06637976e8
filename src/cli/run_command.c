/* run_command.c: commands on signals, runs, steps and tools. One table maps the words of the
 * command line to a verb, and options to members of its JSON body. */
#include "cli/run_command.h"

#include "runs/command.h"

#include <string.h>

/* Every option; a form takes some of them. */
enum run_option {
    RUN_OPTION_ORG,
    RUN_OPTION_TYPE,
    RUN_OPTION_DATA,
    RUN_OPTION_CORRELATION,
    RUN_OPTION_SIGNAL,
    RUN_OPTION_VERSION,
    RUN_OPTION_INDEX,
    RUN_OPTION_DURATION,
    RUN_OPTION_CODE,
    RUN_OPTION_MESSAGE,
    RUN_OPTION_REASON,
    RUN_OPTION_CAUSATION,
    RUN_OPTION_NAME,
    RUN_OPTION_TO,
    RUN_OPTION_STEP,
    RUN_OPTION_EFFECT_KEY,
    RUN_OPTION_ORDERING_KEY,
    RUN_OPTION_MAX_ATTEMPTS,
    RUN_OPTION_EXPECT,
    RUN_OPTION_COUNT
};

static const char *const names[] = {
    [RUN_OPTION_ORG] = "org",
    [RUN_OPTION_TYPE] = "type",
    [RUN_OPTION_DATA] = "data",
    [RUN_OPTION_CORRELATION] = "correlation",
    [RUN_OPTION_SIGNAL] = "signal",
    [RUN_OPTION_VERSION] = "version",
    [RUN_OPTION_INDEX] = "index",
    [RUN_OPTION_DURATION] = "duration-ms",
    [RUN_OPTION_CODE] = "code",
    [RUN_OPTION_MESSAGE] = "message",
    [RUN_OPTION_REASON] = "reason",
    [RUN_OPTION_CAUSATION] = "causation",
    [RUN_OPTION_NAME] = "name",
    [RUN_OPTION_TO] = "to",
    [RUN_OPTION_STEP] = "step",
    [RUN_OPTION_EFFECT_KEY] = "effect-key",
    [RUN_OPTION_ORDERING_KEY] = "ordering-key",
    [RUN_OPTION_MAX_ATTEMPTS] = "max-attempts",
    [RUN_OPTION_EXPECT] = "expect",
};

#define FAILURE [RUN_OPTION_CODE] = "!error_code", [RUN_OPTION_MESSAGE] = "!error_message"

static const struct run_form {
    const char *object, *verb_name; /* `outlog run start`; "" if the object has only one */
    enum ol_run_verb verb;
    const char *members[RUN_OPTION_COUNT]; /* by option; ! marks a required one */
} forms[] = {
    {"signal",
     "",
     OL_RECEIVE_SIGNAL,
     {[RUN_OPTION_ORG] = "org_id",
      [RUN_OPTION_TYPE] = "!signal_type",
      [RUN_OPTION_DATA] = "payload",
      [RUN_OPTION_CORRELATION] = "correlation_id"}},
    {"run",
     "start",
     OL_START_RUN,
     {[RUN_OPTION_ORG] = "org_id",
      [RUN_OPTION_TYPE] = "!run_type",
      [RUN_OPTION_VERSION] = "!orchestrator_version",
      [RUN_OPTION_SIGNAL] = "signal_id"}},
    {"run",
     "step",
     OL_START_STEP,
     {[RUN_OPTION_TYPE] = "!step_type", [RUN_OPTION_INDEX] = "step_index"}},
    {"run",
     "effect",
     OL_REQUEST_EFFECT,
     {[RUN_OPTION_TYPE] = "!effect_type",
      [RUN_OPTION_TO] = "!destination",
      [RUN_OPTION_DATA] = "!effect_spec",
      [RUN_OPTION_STEP] = "step_id",
      [RUN_OPTION_EFFECT_KEY] = "idempotency_key",
      [RUN_OPTION_ORDERING_KEY] = "ordering_key",
      [RUN_OPTION_MAX_ATTEMPTS] = "max_attempts"}},
    {"run", "checkpoint", OL_CHECKPOINT_RUN, {[RUN_OPTION_DATA] = "!checkpoint_data"}},
    {"run", "complete", OL_COMPLETE_RUN, {0}},
    {"run", "fail", OL_FAIL_RUN, {FAILURE}},
    {"run", "cancel", OL_CANCEL_RUN, {[RUN_OPTION_REASON] = "reason"}},
    {"step",
     "complete",
     OL_COMPLETE_STEP,
     {[RUN_OPTION_DATA] = "!output_result", [RUN_OPTION_DURATION] = "duration_ms"}},
    {"step", "fail", OL_FAIL_STEP, {FAILURE}},
    {"step", "skip", OL_SKIP_STEP, {[RUN_OPTION_REASON] = "reason"}},
    {"step", "retry", OL_RETRY_STEP, {0}},
    {"step",
     "correct",
     OL_CORRECT_STEP,
     {[RUN_OPTION_DATA] = "!output_result", [RUN_OPTION_CAUSATION] = "causation_id"}},
    {"tool", "call", OL_CALL_TOOL, {[RUN_OPTION_NAME] = "!tool_name", [RUN_OPTION_DATA] = "input"}},
    {"tool", "complete", OL_COMPLETE_TOOL, {[RUN_OPTION_DATA] = "result"}},
    {"tool", "fail", OL_FAIL_TOOL, {FAILURE}},
};

static const struct run_form *find_form(const char *object, const char *verb_name)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].object, object) == 0 && strcmp(forms[i].verb_name, verb_name) == 0)
            return &forms[i];
    return NULL;
}

/* --- the command line --- */

struct run_command_args {
    const char *values[RUN_OPTION_COUNT];
    const char *actor, *request_id, *key;
    bool is_infrastructure;
};

static int read_options(struct ol_cli *cli, struct run_command_args *args)
{
    struct ol_option options[RUN_OPTION_COUNT + 5] = {{0}};
    for (int i = 0; i < RUN_OPTION_COUNT; i++)
        options[i] = (struct ol_option){names[i], OL_OPTION_STRING, &args->values[i], NULL};
    options[RUN_OPTION_COUNT] = (struct ol_option){"actor", OL_OPTION_STRING, &args->actor, NULL};
    options[RUN_OPTION_COUNT + 1] =
        (struct ol_option){"request-id", OL_OPTION_STRING, &args->request_id, NULL};
    options[RUN_OPTION_COUNT + 2] = (struct ol_option){"key", OL_OPTION_STRING, &args->key, NULL};
    options[RUN_OPTION_COUNT + 3] =
        (struct ol_option){"infra", OL_OPTION_FLAG, &args->is_infrastructure, NULL};
    return ol_cli_options(cli, options);
}

static bool is_number(enum run_option option)
{
    return option == RUN_OPTION_INDEX || option == RUN_OPTION_DURATION ||
           option == RUN_OPTION_MAX_ATTEMPTS || option == RUN_OPTION_EXPECT;
}

/* 0, or the exit status after printing which options are missing. */
static int check_needs(const struct run_form *form, const struct run_command_args *args)
{
    struct ol_buf needs = {0};
    bool is_missing = false;
    for (int i = 0; i < RUN_OPTION_COUNT; i++)
        if (form->members[i] && *form->members[i] == '!') {
            ol_buf_print(&needs, "%s--%s", needs.bytes ? ", " : "", names[i]);
            is_missing |= !args->values[i];
        }
    int status = is_missing ? ol_cli_usage("%s%s%s needs %s; see outlog %s --help", form->object,
                                           *form->verb_name ? " " : "", form->verb_name,
                                           needs.failed ? "more" : needs.data, form->object)
                            : 0;
    ol_buf_clear(&needs);
    return status;
}

/* Add a JSON value to the body; returns like build_body(). */
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

/* Build the body of the call; returns 0, or the exit status after printing what is wrong. */
static int build_body(struct ol_cli *cli, const struct run_form *form,
                      const struct run_command_args *args, struct ol_buf *body)
{
    for (int i = 0; i < RUN_OPTION_COUNT; i++) {
        const char *member = i == RUN_OPTION_EXPECT ? "expected_seq" : form->members[i];
        const char *value = args->values[i];
        int status = 0;
        if (!value)
            continue;
        if (!member)
            return ol_cli_usage("%s %s takes no --%s; see --help", form->object, form->verb_name,
                                names[i]);
        member += *member == '!';
        ol_buf_print(body, "%s\"%s\":", body->bytes ? "," : "{", member);
        if (i == RUN_OPTION_DATA) {
            if ((status = put_json(cli, member, value, body)))
                return status;
        } else if (is_number((enum run_option)i)) {
            if (!*value || value[strspn(value, "0123456789")])
                return ol_cli_usage("--%s takes a whole number, not '%s'", names[i], value);
            ol_buf_text(body, value);
        } else {
            ol_buf_json_text(body, value);
        }
    }
    if (args->is_infrastructure)
        ol_buf_print(body, "%s\"org_id\":null", body->bytes ? "," : "{");
    ol_buf_text(body, body->bytes ? "}" : "{}");
    return 0;
}

static void print_object(struct ol_cli *cli, struct ol_buf *answer)
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

/* Find the form that the words name, and the id that it is about. Returns 0 or OL_EXIT_USAGE. */
static int read_words(const struct ol_cli *cli, const char *object, const struct run_form **out,
                      const char **id)
{
    const struct run_form *form = find_form(object, "");
    int at = 0;
    if (!form)
        form = cli->argc ? find_form(object, cli->argv[at++]) : NULL;
    if (!form)
        return ol_cli_usage("%s needs a verb; `outlog %s --help` lists them", object, object);
    bool has_target = ol_run_verb_target(form->verb) != NULL;
    if (cli->argc - at != has_target)
        return ol_cli_usage("%s %s takes %s", object, form->verb_name,
                            has_target ? "one id" : "no words, only options");
    *id = has_target ? cli->argv[at] : NULL;
    *out = form;
    return 0;
}

/* Run the call in a transaction of its own and print the object; returns the exit status. */
static int run_call(struct ol_cli *cli, const struct ol_run_call *call)
{
    struct ol_buf answer = {0};
    outlog_tx *tx = NULL;
    outlog_err err;
    int status = OL_EXIT_FAILED;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return status;
    if (outlog_begin(log, &tx, &err) < 0 || ol_run_command(tx, call, &answer, NULL, &err) < 0) {
        outlog_rollback(tx);
        ol_cli_report(&err);
    } else if (outlog_commit(tx, &err) < 0) {
        ol_cli_report(&err);
    } else {
        print_object(cli, &answer);
        status = OL_EXIT_DONE;
    }
    outlog_close(log);
    ol_buf_clear(&answer);
    return status;
}

int ol_cli_run_command(struct ol_cli *cli, const char *object)
{
    struct run_command_args args = {0};
    const struct run_form *form;
    struct ol_run_call call = {0};
    struct ol_buf body = {0};
    int status = read_options(cli, &args);

    if (status || (status = read_words(cli, object, &form, &call.id)))
        return status;
    if ((status = ol_cli_org_or_infra(args.values[RUN_OPTION_ORG], args.is_infrastructure)) ||
        (status = ol_cli_actor(cli, args.actor, &call.actor_type, &call.actor_id)) ||
        (status = check_needs(form, &args)) || (status = build_body(cli, form, &args, &body)))
        goto out;
    call.verb = form->verb;
    call.request_id = args.request_id;
    call.idempotency_key = args.key;
    call.body = body.data;
    call.body_bytes = body.bytes;
    status = run_call(cli, &call);
out:
    ol_buf_clear(&body);
    return status;
}
