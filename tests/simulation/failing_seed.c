/* Whatever ends a simulation says in which seed: one that fails is to be run again, and
 * a store's own assert, or a crash, knows nothing of seeds. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

static const world *current; /* NULL: no run is under way */

static void say_seed(void)
{
    if (current != NULL)
        fprintf(stderr, "ended in seed %" PRIu64 "\n", current->seed);
    current = NULL;
}

/* The process dies of it anyway, so what is not to be done in a handler can do no harm:
 * at worst the seed is not said. */
static void say_seed_and_die(int number)
{
    say_seed();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

void failing_seed_watch(const world *w)
{
    static const int DEADLY[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGTERM, SIGINT};
    if (atexit(say_seed) != 0)
        abort();
    for (size_t i = 0; i < sizeof DEADLY / sizeof DEADLY[0]; i++) {
        struct sigaction had;
        /* A sanitizer's own handler has more to say. */
        if (sigaction(DEADLY[i], NULL, &had) == 0 && had.sa_handler == SIG_DFL)
            (void)signal(DEADLY[i], say_seed_and_die);
    }
    current = w;
}

void failing_seed_unwatch(void)
{
    current = NULL;
}
