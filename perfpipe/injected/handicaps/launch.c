/* A callback of CUPTI that counts launches of kernels and graphs, and delays each by a known time.

   It is C because a launch may happen in any thread, with or without Python's lock: waiting for the
   lock could take milliseconds, or never end.  No header of CUDA is needed. */

#include <stdint.h>
#include <time.h>

/* Domains of callbacks: functions of the driver and of the runtime. */
enum { DRIVER = 1, RUNTIME = 2 };

/* Number of launches so far, and the delay of each, ns. */
int64_t launches = 0;
int64_t delay_ns = 0;

/* Functions of the runtime that this thread is in. */
static __thread int depth = 0;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* CUpti_CallbackFunc.  `data` is CUpti_CallbackData, which begins with the site: 0 when a function
   is entered, 1 when it is left.  The runtime launches with functions of the driver, for which there
   may be callbacks too: they are the same launch. */
void launched(void *user, int domain, uint32_t id, const int *data) {
    int enters = *data == 0;
    int outermost = depth == 0;
    if (domain == RUNTIME)
        depth += enters ? 1 : outermost ? 0 : -1;
    else if (domain != DRIVER)
        return;
    if (!enters || !outermost)
        return;
    __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    if (delay_ns > 0) {
        int64_t end = now() + delay_ns;
        while (now() < end) {
        }
    }
}
