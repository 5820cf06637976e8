/* run_file.c: making, locking and testing the files of runs. See run_file.h for F1 to F3. */
#include "base/run_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define ZFS_MAGIC 0x2fc12fc1

enum { SWEEP_AGE_S = 24 * 3600, OPEN_TRIES = 5 };

/* Only a local file system keeps a lock exactly as long as its holder lives. A server of files may
 * let go of the lock of a client that is cut off and works on. */
static bool is_local(int fd)
{
    struct statfs system;
    if (fstatfs(fd, &system) < 0)
        return false;
    switch ((unsigned long)system.f_type) {
    case EXT4_SUPER_MAGIC: // ext2 and ext3 too
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case ZFS_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

/* Whoever may write to the folder could remove our file and put another one there. */
static int open_folder(const char *path)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) == 0 && (found.st_uid == geteuid() || found.st_uid == 0) &&
        (found.st_mode & (S_IWGRP | S_IWOTH)) == 0 && is_local(fd))
        return fd;
    close(fd);
    return -1;
}

static bool read_boot_id(char out[OL_UUID_TEXT])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, OL_UUID_TEXT - 1);
    if (fd >= 0)
        close(fd);
    out[got > 0 ? got : 0] = '\0';
    return got == OL_UUID_TEXT - 1;
}

/* A sweep may remove the file between its creation and its lock: then it is made again. */
static int make_locked_file(int folder, const char *run, struct stat *made)
{
    for (int i = 0; i < OPEN_TRIES; i++) {
        int fd = openat(folder, run, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) == 0 && fstat(fd, made) == 0 && made->st_nlink == 1)
            return fd;
        close(fd);
    }
    return -1;
}

bool ol_run_file_open(struct ol_run_file *file, const char *folder, const char *run)
{
    struct stat made;
    int parent = read_boot_id(file->boot_id) ? open_folder(folder) : -1;

    file->fd = parent < 0 ? -1 : make_locked_file(parent, run, &made);
    if (parent >= 0)
        close(parent);
    if (file->fd < 0)
        return false;
    snprintf(file->path, sizeof file->path, "%s/%s", folder, run);
    file->device = (int64_t)made.st_dev;
    file->inode = (int64_t)made.st_ino;
    return true;
}

void ol_run_file_close(struct ol_run_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

void ol_run_file_remove(struct ol_run_file *file)
{
    if (file->fd >= 0)
        unlink(file->path);
    ol_run_file_close(file);
}

void ol_run_file_touch(const struct ol_run_file *file)
{
    if (file->fd >= 0)
        futimens(file->fd, NULL);
}

/* Open a file of the folder whose lock is free, and hold it shared: those who test do not disturb
 * each other. -1: it is held, or there is none. */
static int open_free_file(int folder, const char *run, struct stat *found)
{
    int fd = openat(folder, run, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, found) == 0 && S_ISREG(found->st_mode) &&
        flock(fd, LOCK_SH | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

bool ol_run_file_is_dead(const char *folder, const char *run, int64_t device, int64_t inode)
{
    struct stat found;
    int parent = open_folder(folder);
    int fd = parent < 0 ? -1 : open_free_file(parent, run, &found);
    if (parent >= 0)
        close(parent);
    if (fd < 0)
        return false;
    close(fd);
    return (int64_t)found.st_dev == device && (int64_t)found.st_ino == inode;
}

void ol_run_file_forget(const char *folder, const char *run)
{
    int parent = open_folder(folder);
    if (parent < 0)
        return;
    unlinkat(parent, run, 0);
    close(parent);
}

static bool is_run_name(const char *name)
{
    return strlen(name) == OL_UUID_TEXT - 1 &&
           strspn(name, "0123456789abcdef-") == OL_UUID_TEXT - 1;
}

void ol_run_file_sweep(const char *folder)
{
    int parent = open_folder(folder);
    DIR *list = parent < 0 ? NULL : fdopendir(parent);
    struct dirent *entry;
    struct stat found;

    while (list && (entry = readdir(list))) {
        int fd = is_run_name(entry->d_name) ? open_free_file(parent, entry->d_name, &found) : -1;
        if (fd < 0)
            continue;
        if (time(NULL) - found.st_mtime > SWEEP_AGE_S)
            unlinkat(parent, entry->d_name, 0);
        close(fd);
    }
    if (list)
        closedir(list);
    else if (parent >= 0)
        close(parent);
}
