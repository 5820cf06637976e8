/* test_run_file.c: who is dead by its run file, and who is not. */
#include "base/run_file.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/outlog-runs-XXXXXX";
static char run[OL_UUID_TEXT];

static void *wait_forever(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* A process with the run's file: it tells us device and inode, and stays. `ends`: its first thread
 * ends, another one lives. */
static pid_t start_holder(bool ends, struct ol_run_file *made)
{
    int ends_of_pipe[2];
    assert_int_equal(pipe(ends_of_pipe), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_t other;
        made->fd = -1;
        if (!ol_run_file_open(made, folder, run) ||
            pthread_create(&other, NULL, wait_forever, NULL) != 0 ||
            write(ends_of_pipe[1], made, sizeof *made) != (ssize_t)sizeof *made)
            _exit(1);
        if (ends)
            pthread_exit(NULL);
        wait_forever(NULL);
    }
    assert_int_equal(read(ends_of_pipe[0], made, sizeof *made), sizeof *made);
    close(ends_of_pipe[0]);
    close(ends_of_pipe[1]);
    return pid;
}

static bool is_dead(const struct ol_run_file *file)
{
    return ol_run_file_is_dead(folder, run, file->device, file->inode);
}

static char read_status(pid_t pid)
{
    char path[40], status = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &status), 1);
    fclose(file);
    return status;
}

static void await_status(pid_t pid, char wanted)
{
    for (int i = 0; i < 30000 && read_status(pid) != wanted; i++)
        usleep(1000);
    assert_int_equal(read_status(pid), wanted);
}

static void end_holder(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int make_run(void **state)
{
    (void)state;
    ol_uuid_make(run);
    return 0;
}

static void l9_only_a_process_that_is_wholly_gone_is_dead(void **state)
{
    struct ol_run_file file;
    (void)state;
    pid_t pid = start_holder(false, &file);
    assert_false(is_dead(&file));
    kill(pid, SIGSTOP);
    await_status(pid, 'T');
    assert_false(is_dead(&file));
    kill(pid, SIGKILL);
    await_status(pid, 'Z'); // nobody has reaped it
    assert_true(is_dead(&file));
    end_holder(pid);
    assert_true(is_dead(&file));
}

static void l9_a_process_whose_first_thread_ended_lives(void **state)
{
    struct ol_run_file file;
    (void)state;
    pid_t pid = start_holder(true, &file);
    await_status(pid, 'Z'); // as /proc shows it
    assert_false(is_dead(&file));
    end_holder(pid);
    assert_true(is_dead(&file));
}

static void l9_a_missing_or_another_file_proves_nothing(void **state)
{
    struct ol_run_file file, other = {.fd = -1};
    (void)state;
    end_holder(start_holder(false, &file));
    assert_true(is_dead(&file));
    assert_false(ol_run_file_is_dead(folder, run, file.device, file.inode + 1));
    assert_false(ol_run_file_is_dead(folder, run, file.device + 1, file.inode));
    ol_run_file_forget(folder, run);
    assert_false(is_dead(&file));
    ol_uuid_make(run);
    assert_true(ol_run_file_open(&other, folder, run));
    assert_false(is_dead(&file));
    ol_run_file_remove(&other);
}

static void l9_a_folder_that_others_may_write_to_is_not_used(void **state)
{
    struct ol_run_file file = {.fd = -1};
    (void)state;
    chmod(folder, 0777);
    assert_false(ol_run_file_open(&file, folder, run));
    chmod(folder, 0700);
    assert_true(ol_run_file_open(&file, folder, run));
    ol_run_file_remove(&file);
    assert_false(ol_run_file_open(&file, "/proc", run)); // no local disk
    assert_false(ol_run_file_open(&file, "/nowhere", run));
}

/* Set the time of a file back by a day and a half. */
static void age_file(const struct ol_run_file *file)
{
    struct timespec old[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 36 * 3600}};
    assert_int_equal(futimens(file->fd, old), 0);
}

static void l9_a_sweep_removes_old_files_that_nobody_holds(void **state)
{
    struct ol_run_file held = {.fd = -1}, left = {.fd = -1}, young = {.fd = -1};
    char other[OL_UUID_TEXT], third[OL_UUID_TEXT];
    (void)state;
    ol_uuid_make(other);
    ol_uuid_make(third);
    assert_true(ol_run_file_open(&held, folder, run));
    assert_true(ol_run_file_open(&left, folder, other));
    assert_true(ol_run_file_open(&young, folder, third));
    age_file(&held);
    age_file(&left);
    ol_run_file_close(&left);
    ol_run_file_close(&young);
    ol_run_file_sweep(folder);
    assert_int_equal(access(held.path, F_OK), 0);
    assert_int_equal(access(left.path, F_OK), -1);
    assert_int_equal(access(young.path, F_OK), 0);
    ol_run_file_remove(&held);
    ol_run_file_forget(folder, third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(l9_only_a_process_that_is_wholly_gone_is_dead, make_run),
        cmocka_unit_test_setup(l9_a_process_whose_first_thread_ended_lives, make_run),
        cmocka_unit_test_setup(l9_a_missing_or_another_file_proves_nothing, make_run),
        cmocka_unit_test_setup(l9_a_folder_that_others_may_write_to_is_not_used, make_run),
        cmocka_unit_test_setup(l9_a_sweep_removes_old_files_that_nobody_holds, make_run),
    };
    if (!mkdtemp(folder))
        return 1;
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? result : 1;
}
