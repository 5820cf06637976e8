/* signal.c: outlog signal, outlog step, outlog tool: an orchestrator records its work. */
#include "cli/run_command.h"

static int run_signal(struct ol_cli *cli)
{
    return ol_cli_run_command(cli, "signal");
}

static int run_step(struct ol_cli *cli)
{
    return ol_cli_run_command(cli, "step");
}

static int run_tool(struct ol_cli *cli)
{
    return ol_cli_run_command(cli, "tool");
}

const struct ol_cli_command ol_command_signal = {
    .name = "signal",
    .summary = "record a signal, from which a run can be started",
    .help = "usage: outlog signal --org O|--infra --type T [--data JSON|@FILE] [--correlation C]\n"
            "                     [--actor user:U] [--key K] [--request-id R] [--expect SEQ]\n\n"
            "Stores the signal and SIGNAL_RECEIVED, and prints the signal's id.\n\n"
            "  outlog signal --org acme --type order.placed --data '{\"order\":\"o-1\"}'\n",
    .run = run_signal,
};

const struct ol_cli_command ol_command_step = {
    .name = "step",
    .summary = "steps of a run: complete, fail, skip, retry, correct",
    .help = "usage: outlog step complete STEP_ID --data JSON|@FILE [--duration-ms N]\n"
            "       outlog step fail STEP_ID --code C --message M\n"
            "       outlog step skip STEP_ID [--reason R]\n"
            "       outlog step retry STEP_ID\n"
            "       outlog step correct STEP_ID --data JSON|@FILE [--causation EVENT]\n\n"
            "Each also takes --actor user:U, --key K, --request-id R and --expect SEQ (the step's\n"
            "last aggregate_seq). Steps are started by `outlog run step`.\n\n"
            "  outlog step complete 019a… --data '{\"reserved\":2}'\n",
    .run = run_step,
};

const struct ol_cli_command ol_command_tool = {
    .name = "tool",
    .summary = "tool calls of a step: call, complete, fail",
    .help = "usage: outlog tool call STEP_ID --name N [--data JSON|@FILE]\n"
            "       outlog tool complete TOOL_CALL_ID [--data JSON|@FILE]\n"
            "       outlog tool fail TOOL_CALL_ID --code C --message M\n\n"
            "Each also takes --actor user:U, --key K, --request-id R and --expect SEQ.\n\n"
            "  outlog tool call 019a… --name stock.lookup --data '{\"sku\":\"b-7\"}'\n",
    .run = run_tool,
};
