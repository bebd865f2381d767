/* Work divided among threads that are kept from step to step. */
#pragma once

typedef void (*Task)(const void *job, int item);

/* Call task(job, i) once for every i below items (at most 2^20), on this thread and on up to threads - 1 others;
 * returns when all have returned. Callers at the same time take turns; a task calls nothing in parallel. */
void in_parallel(Task task, const void *job, int items, int threads);
