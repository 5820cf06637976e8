/* trace.c: outlog trace and outlog causality: events as a tree of causes and effects. */
#include "cli/cli.h"

#include "log/event.h"

#include <stdlib.h>
#include <string.h>

/* --- the tree --- */

enum { TRACE_INDENT_MAX = 160 }; /* bytes: deeper levels are not indented further */

struct trace_tree {
    const struct ol_cli *cli;
    const struct outlog_page *page;
    int *parent; /* index of the cause in the page; -1 for a root */
    struct ol_buf indent, line;
};

static int compare_ids(const void *a, const void *b, void *context)
{
    const struct outlog_page *page = context;
    return strcmp(page->events[*(const int *)a].id, page->events[*(const int *)b].id);
}

/* Find each event's cause by binary search, so that a trace of 10,000 events takes no time. */
static bool find_parents(struct trace_tree *tree, struct ol_arena *arena)
{
    const struct outlog_page *page = tree->page;
    int *order = ol_arena_array(arena, page->count, sizeof *order);
    tree->parent = ol_arena_array(arena, page->count, sizeof *tree->parent);
    if (!order || !tree->parent)
        return false;
    for (size_t i = 0; i < page->count; i++)
        order[i] = (int)i;
    qsort_r(order, page->count, sizeof *order, compare_ids, (void *)page);
    for (size_t i = 0; i < page->count; i++) {
        int low = 0, high = (int)page->count - 1;
        tree->parent[i] = -1;
        while (*page->events[i].causation_id && low <= high) {
            int middle = low + (high - low) / 2;
            int sign = strcmp(page->events[order[middle]].id, page->events[i].causation_id);
            if (sign == 0) {
                tree->parent[i] = order[middle];
                break;
            }
            if (sign < 0)
                low = middle + 1;
            else
                high = middle - 1;
        }
    }
    return true;
}

static void draw_node(struct trace_tree *tree, int at, const char *branch)
{
    const struct outlog_event *event = &tree->page->events[at];
    const struct ol_cli *cli = tree->cli;
    double since_ms = (double)(event->occurred_at - tree->page->events[0].occurred_at) / 1000;

    ol_buf_print(&tree->line, "%s%s%s%s", ol_cli_dim(cli),
                 tree->indent.data ? tree->indent.data : "", branch, ol_cli_plain(cli));
    ol_buf_text(&tree->line, ol_cli_accent(cli));
    ol_cli_put_safe(&tree->line, event->event_type, strlen(event->event_type));
    ol_buf_print(&tree->line, "%s  ", ol_cli_plain(cli));
    ol_cli_put_safe(&tree->line, event->aggregate_type, strlen(event->aggregate_type));
    ol_buf_char(&tree->line, '/');
    ol_cli_put_safe(&tree->line, event->aggregate_id, strlen(event->aggregate_id));
    ol_buf_print(&tree->line, "#%lld  %sevent %lld  +%.1f ms%s", (long long)event->aggregate_seq,
                 ol_cli_dim(cli), (long long)event->event_id, since_ms, ol_cli_plain(cli));
    ol_cli_put_line(&tree->line);
}

static void draw_children(struct trace_tree *tree, int parent)
{
    int count = (int)tree->page->count, last = -1;
    for (int i = 0; i < count; i++)
        if (tree->parent[i] == parent)
            last = i;
    for (int i = parent + 1; i <= last; i++) { // a cause is always older
        if (tree->parent[i] != parent)
            continue;
        size_t depth = tree->indent.bytes;
        draw_node(tree, i, parent < 0 ? "" : i == last ? "└─ " : "├─ ");
        if (parent >= 0 && depth < TRACE_INDENT_MAX)
            ol_buf_text(&tree->indent, i == last ? "   " : "│  ");
        draw_children(tree, i);
        tree->indent.bytes = depth;
        if (tree->indent.data)
            tree->indent.data[depth] = '\0';
    }
}

/* The library reads at most this many. */
enum { TRACE_EVENTS_MAX = 10000 };

static void print_if_cut(const struct outlog_page *page)
{
    if (page->count >= TRACE_EVENTS_MAX)
        fprintf(stderr,
                "outlog: only the first %d events are shown; `outlog events` has them all\n",
                TRACE_EVENTS_MAX);
}

static int draw_tree(struct ol_cli *cli, const struct outlog_page *page)
{
    struct trace_tree tree = {.cli = cli, .page = page};
    bool ok = find_parents(&tree, &cli->arena);
    if (ok)
        draw_children(&tree, -1);
    ol_buf_clear(&tree.indent);
    ol_buf_clear(&tree.line);
    return ok ? OL_EXIT_DONE : OL_EXIT_FAILED;
}

static void print_json(const struct outlog_page *page, bool with_depth)
{
    struct ol_buf line = {0};
    for (size_t i = 0; i < page->count; i++) {
        ol_event_write_json(&page->events[i], &line);
        if (with_depth && !line.failed) {
            line.bytes--; // put depth before the closing brace
            ol_buf_print(&line, ",\"depth\":%d}", page->events[i].depth);
        }
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
}

/* --- the commands --- */

static int run_trace(struct ol_cli *cli)
{
    struct outlog_filter filter = {0};
    struct outlog_page page = {0};
    outlog_err err;
    int status = ol_cli_options(cli, (const struct ol_option[]){{"org", OL_OPTION_STRING,
                                                                 &filter.org_id, NULL},
                                                                {0}});
    if (status)
        return status;
    if (cli->argc != 1)
        return ol_cli_usage("trace takes one CORRELATION_ID");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (outlog_trace(log, &filter, cli->argv[0], &page, &err) < 0)
        status = ol_cli_report(&err);
    else if (page.count == 0) {
        ol_fail(&err, OUTLOG_NOT_FOUND, "no event has correlation %.100s", cli->argv[0]);
        status = ol_cli_report(&err);
    } else if (cli->json)
        print_json(&page, false);
    else
        status = draw_tree(cli, &page);
    print_if_cut(&page);
    outlog_page_clear(&page);
    outlog_close(log);
    return status;
}

static int run_causality(struct ol_cli *cli)
{
    struct outlog_page page = {0};
    outlog_err err;
    bool down = false;
    int status =
        ol_cli_options(cli, (const struct ol_option[]){{"down", OL_OPTION_FLAG, &down, NULL}, {0}});
    if (status)
        return status;
    if (cli->argc != 1)
        return ol_cli_usage("causality takes one event: its event_id or its id");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (outlog_causality(log, cli->argv[0], down ? OUTLOG_DOWN : OUTLOG_UP, &page, &err) < 0)
        status = ol_cli_report(&err);
    else if (cli->json)
        print_json(&page, true);
    else {
        if (!down) // for people the root comes first
            for (size_t i = 0; i < page.count / 2; i++) {
                struct outlog_event swap = page.events[i];
                page.events[i] = page.events[page.count - 1 - i];
                page.events[page.count - 1 - i] = swap;
            }
        status = draw_tree(cli, &page);
    }
    print_if_cut(&page);
    outlog_page_clear(&page);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_trace = {
    .name = "trace",
    .summary = "everything that happened under one correlation id, as a tree",
    .help =
        "usage: outlog trace CORRELATION_ID [--org O] [--json]\n\n"
        "Prints all events with this correlation id: each below the event that caused it, with the\n"
        "time since the first. --json prints the events in order, one per line.\n\n"
        "  outlog trace 019a8c1e-…\n",
    .run = run_trace,
};

const struct ol_cli_command ol_command_causality = {
    .name = "causality",
    .summary = "why an event happened, or what it led to",
    .help =
        "usage: outlog causality ID [--down] [--json]\n\n"
        "ID is an event_id or an id. Prints the chain of causes up to the root, or with --down the\n"
        "tree of all that the event led to. With --json each event has its depth, 0 for ID itself.\n\n"
        "  outlog causality 42\n"
        "  outlog causality 42 --down\n",
    .run = run_causality,
};
