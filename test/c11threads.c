/* c11threads.c: threads of C11 by those of POSIX, for ThreadSanitizer, which knows only these.
 *
 * librdkafka is built with C11's. A thread that the sanitizer did not see begin crashes in its
 * first call of malloc, and locks that it does not see look like races. glibc's types of the two
 * are the same inside. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

struct start {
    thrd_start_t run;
    void *argument;
};

static void *begin(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    return (void *)(intptr_t)start.run(start.argument);
}

static int told(int error)
{
    return error == 0           ? thrd_success
           : error == ENOMEM    ? thrd_nomem
           : error == EBUSY     ? thrd_busy
           : error == ETIMEDOUT ? thrd_timedout
                                : thrd_error;
}

int thrd_create(thrd_t *thread, thrd_start_t run, void *argument)
{
    struct start *start = malloc(sizeof *start);
    if (!start)
        return thrd_nomem;
    *start = (struct start){run, argument};
    int error = pthread_create(thread, NULL, begin, start);
    if (error)
        free(start);
    return told(error);
}

int thrd_join(thrd_t thread, int *result)
{
    void *returned;
    int error = pthread_join(thread, &returned);
    if (!error && result)
        *result = (int)(intptr_t)returned;
    return told(error);
}

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_settype(&how, type & mtx_recursive ? PTHREAD_MUTEX_RECURSIVE
                                                         : PTHREAD_MUTEX_NORMAL);
    int error = pthread_mutex_init((pthread_mutex_t *)mutex, &how);
    pthread_mutexattr_destroy(&how);
    return told(error);
}

int mtx_lock(mtx_t *mutex)
{
    return told(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

int mtx_trylock(mtx_t *mutex)
{
    return told(pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

int mtx_unlock(mtx_t *mutex)
{
    return told(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

void mtx_destroy(mtx_t *mutex)
{
    pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int cnd_init(cnd_t *condition)
{
    return told(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

int cnd_signal(cnd_t *condition)
{
    return told(pthread_cond_signal((pthread_cond_t *)condition));
}

int cnd_broadcast(cnd_t *condition)
{
    return told(pthread_cond_broadcast((pthread_cond_t *)condition));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return told(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until)
{
    return told(
        pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}

void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy((pthread_cond_t *)condition);
}
