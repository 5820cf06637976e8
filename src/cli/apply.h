/* apply.h: reads outlog.yaml and applies it to the store. */
#ifndef OL_CLI_APPLY_H
#define OL_CLI_APPLY_H

#include "cli/cli.h"
#include "cli/yaml.h"
#include "config/apply.h"

/* Read and check a file ("-": standard input). Its `store:` becomes the store unless a flag or the
 * environment names one. Returns an exit status; prints the error unless it is OL_EXIT_DONE. */
int ol_cli_config_read(struct ol_cli *cli, const char *file, struct ol_yaml *out);

/* Apply the file to the store; `changes` gets what was changed. Returns an exit status, like
 * ol_cli_config_read(). */
int ol_cli_config_apply(struct ol_cli *cli, outlog *log, const char *file,
                        const struct ol_yaml *yaml, const struct ol_config_options *options,
                        struct ol_config_diffs *changes);

#endif
