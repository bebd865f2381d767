/* Helpers take items from one counter until none is left. Nobody waits for a helper that has taken nothing: one
 * that sleeps, or whose core is busy with another program, costs nothing but its help. */
#include "threads.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { MOST_HELPERS = 63, SPINS = 20000 };

/* The round's number, its items, and the next item, in one word: an item is taken together with what it belongs
 * to. While a taken item is not done its round is not over, so the round's job still stands. */
#define NEXT_BITS 20
#define MASK ((UINT64_C(1) << NEXT_BITS) - 1)
static _Atomic uint64_t counter;
static _Atomic int done;
static _Atomic int allowed;
static Task round_task;
static const void *round_job;

static int helpers;
static _Atomic int sleeping;
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER; /* there is one round at a time */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static int items_left(uint64_t word) { return (word & MASK) < ((word >> NEXT_BITS) & MASK); }

static int there_is_work(int helper) { return helper < atomic_load(&allowed) && items_left(atomic_load(&counter)); }

static void take_items(void) {
    while (items_left(atomic_load(&counter))) {
        uint64_t word = atomic_fetch_add(&counter, 1);
        if (!items_left(word)) return;
        round_task(round_job, (int)(word & MASK));
        atomic_fetch_add(&done, 1);
    }
}

static void *help(void *number) {
    int helper = (int)(intptr_t)number;
    for (;;) {
        for (int spin = 0; spin < SPINS && !there_is_work(helper); spin++) _mm_pause();
        if (!there_is_work(helper)) {
            pthread_mutex_lock(&mutex);
            atomic_fetch_add(&sleeping, 1);
            while (!there_is_work(helper)) pthread_cond_wait(&work, &mutex);
            atomic_fetch_sub(&sleeping, 1);
            pthread_mutex_unlock(&mutex);
        }
        take_items();
    }
    return NULL;
}

/* In a forked child: it has no helpers, and what they waited on is as it was amid their waiting. */
static void forget_helpers(void) {
    calls = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    work = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    helpers = 0;
    atomic_store(&sleeping, 0);
}

static void hire(int wanted) {
    static int told;
    if (!told) told = pthread_atfork(NULL, NULL, forget_helpers) == 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (helpers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, help, (void *)(intptr_t)helpers)) break;
        helpers++;
    }
    pthread_attr_destroy(&attributes);
}

static void round_of(Task task, const void *job, int items, int wanted) {
    round_task = task;
    round_job = job;
    atomic_store(&done, 0);
    atomic_store(&allowed, wanted);
    uint64_t number = (atomic_load(&counter) >> 2 * NEXT_BITS) + 1;
    atomic_store(&counter, number << 2 * NEXT_BITS | (uint64_t)items << NEXT_BITS);
    if (atomic_load(&sleeping) > 0) {
        pthread_mutex_lock(&mutex);
        pthread_cond_broadcast(&work);
        pthread_mutex_unlock(&mutex);
    }
    take_items();
    while (atomic_load(&done) < items) _mm_pause();
}

void in_parallel(Task task, const void *job, int items, int threads) {
    int wanted = (threads < items ? threads : items) - 1;
    if (wanted > MOST_HELPERS) wanted = MOST_HELPERS;
    if (wanted > 0) {
        pthread_mutex_lock(&calls);
        if (wanted > helpers) hire(wanted);
        int together = helpers > 0;
        if (together) round_of(task, job, items, wanted);
        pthread_mutex_unlock(&calls);
        if (together) return;
    }
    for (int i = 0; i < items; i++) task(job, i);
}
