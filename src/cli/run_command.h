/* run_command.h: signals, runs, steps and tools from the command line. */
#ifndef OL_CLI_RUN_COMMAND_H
#define OL_CLI_RUN_COMMAND_H

#include "cli/cli.h"

/* `outlog NOUN WORD [ID] [OPTIONS]`, as one transaction; prints the object. Returns the exit
 * status. */
int ol_cli_command(struct ol_cli *cli, const char *noun);

/* Draw a run as a timeline: its steps with their tools, effects and attempts. */
int ol_cli_timeline(struct ol_cli *cli, outlog *log, const char *run_id, outlog_err *err);

/* A difference that verify found, as a line. */
void ol_cli_difference(void *cli, const char *table, const char *id, const char *field,
                       const char *stored, const char *replayed);

#endif
