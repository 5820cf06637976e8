/* run_command.h: commands on signals, runs, steps and tools. */
#ifndef OL_CLI_RUN_COMMAND_H
#define OL_CLI_RUN_COMMAND_H

#include "cli/cli.h"

/* Run `outlog OBJECT WORD [ID] [OPTIONS]` in one transaction and print the object. Returns the exit
 * status. */
int ol_cli_run_command(struct ol_cli *cli, const char *object);

/* Draw a run as a timeline: its steps with their tools, effects and attempts. */
int ol_cli_timeline(struct ol_cli *cli, outlog *log, const char *run_id, outlog_err *err);

/* Print a difference that verify found as a line; `cli` is a struct ol_cli. */
void ol_cli_print_difference(void *cli, const char *table, const char *id, const char *field,
                             const char *stored, const char *replayed);

#endif
