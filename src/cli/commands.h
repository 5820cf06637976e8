/* commands.h: every command, in the order in which `outlog --help` lists them.
 *
 * A new command is a file src/cli/NAME.c that defines `ol_command_NAME`, and a line here. */
#ifndef OL_CLI_COMMANDS_H
#define OL_CLI_COMMANDS_H

// clang-format off
#define OL_CLI_COMMANDS(X) \
    X(init)         \
    X(append)       \
    X(events)       \
    X(trace)        \
    X(causality)    \
    X(consumers)    \
    X(projections)  \
    X(apply)        \
    X(send)         \
    X(relay)        \
    X(outbox)       \
    X(dead)         \
    X(requeue)      \
    X(kill)         \
    X(destinations) \
    X(stats)        \
    X(config)       \
    X(runs)         \
    X(run)          \
    X(verify)       \
    X(signal)       \
    X(step)         \
    X(tool)         \
    X(sinks)        \
    X(export)       \
    X(import)       \
    X(serve)        \
    X(token)        \
    X(doctor)       \
    X(restored)     \
    X(bench)        \
    X(notices)      \
    X(sessions)     \
    X(version)
// clang-format on

#endif
