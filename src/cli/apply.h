/* apply.h: outlog.yaml, read and applied. */
#ifndef OL_CLI_APPLY_H
#define OL_CLI_APPLY_H

#include "cli/cli.h"
#include "cli/yaml.h"
#include "config/apply.h"

/* Read and check a file ("-": standard input); its `store:` counts when neither a flag nor the
 * environment names one. An exit status; anything but OL_EXIT_DONE was said. */
int ol_cli_config_read(struct ol_cli *cli, const char *file, struct ol_yaml *out);

/* Make the store say what it says. */
int ol_cli_config_apply(struct ol_cli *cli, outlog *log, const char *file,
                        const struct ol_yaml *yaml, const struct ol_config_options *options,
                        struct ol_config_diffs *changes);

#endif
