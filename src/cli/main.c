/* main.c: finds the command and runs it. */
#include "cli/cli.h"

#include "store/sqlite/tune.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OL_CLI_ADDRESS(name) &ol_command_##name,
static const struct ol_cli_command *const commands[] = {OL_CLI_COMMANDS(OL_CLI_ADDRESS)};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *to)
{
    fputs("outlog: an event log and a transactional outbox over your own database\n\n"
          "usage: outlog COMMAND [OPTIONS]\n\n",
          to);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs(
        "\nEvery command takes\n"
        "  --store URL   sqlite:PATH or postgres://…   (else OUTLOG_STORE, else sqlite:outlog.db)\n"
        "  --json        one JSON object per line\n"
        "  --help        what the command does, with examples\n\n"
        "Try:\n"
        "  outlog init\n"
        "  outlog append --org acme --aggregate order/o-1 --type order.created "
        "--data '{\"total\":12}'\n"
        "  outlog events\n",
        to);
}

static const struct ol_cli_command *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* The first word that is not an option is the command; global options may come before it. */
static int find_command_word(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--store") == 0)
            i++;
        else if (argv[i][0] != '-')
            return i;
    }
    return -1;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* A reader that closes the pipe has what it wants: `outlog events | head`. */
static bool is_pipe_closed(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) > 0 && out.revents & (POLLERR | POLLHUP);
}

/* Run the command at argv[at], which is taken out of the words. Returns the exit status. */
static int run_command(const struct ol_cli_command *command, int argc, char **argv, int at)
{
    const char *store = getenv("OUTLOG_STORE");
    struct ol_cli cli = {.store = store && *store ? store : "sqlite:outlog.db",
                         .store_from = store && *store ? OL_FROM_ENVIRONMENT : OL_FROM_DEFAULT,
                         .color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
                         .argc = argc - 2,
                         .argv = argv + 1};
    memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv);
    int status = command->run(&cli);
    bool is_cut = fflush(stdout) != 0 || ferror(stdout);
    if (is_cut && status == OL_EXIT_DONE && !is_pipe_closed()) {
        fputs("outlog: the output could not be written and is not complete; free some space, or "
              "write it somewhere else [output_failed]\n",
              stderr);
        status = OL_EXIT_FAILED;
    }
    ol_arena_clear(&cli.arena);
    return status;
}

/* `outlog` with options only, or with nothing at all. */
static int run_without_command(int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        print_help(stdout);
        return OL_EXIT_DONE;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return ol_command_version.run(&(struct ol_cli){0});
    if (argc > 1)
        return ol_cli_usage("'%s' is not a command; `outlog --help` lists them", argv[1]);
    print_help(stderr);
    return OL_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    ol_sqlite_tune();
    int at = find_command_word(argc, argv);
    if (at < 0)
        return run_without_command(argc, argv);
    bool is_help = strcmp(argv[at], "help") == 0;
    if (is_help && at + 1 == argc) {
        print_help(stdout);
        return OL_EXIT_DONE;
    }
    at += is_help; // help COMMAND
    const struct ol_cli_command *command = find_command(argv[at]);
    if (!command)
        return ol_cli_usage("there is no command '%s'; `outlog --help` lists them", argv[at]);
    if (is_help || wants_help(argc, argv)) {
        fputs(command->help, stdout);
        return OL_EXIT_DONE;
    }
    return run_command(command, argc, argv, at);
}
