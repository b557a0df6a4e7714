/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, GRACE_MS = 3000, POLL_MS = 2, TEXT_BYTES = 8192 };

typedef struct child {
    pid_t pid;
    int text; /* what it wrote to standard error; −1: rank 0, whose goes through */
    int exit_status;
    int killed_by;
    bool done, killed_here;
} child;

typedef struct children {
    child list[MOST];
    uint32_t n;
} children;

/* A handler gets no argument. */
static volatile sig_atomic_t rank0;

static void pass_on(int number) {
    int saved = errno;
    if (rank0 > 0) kill((pid_t)rank0, number);
    errno = saved;
}

static void pass_signals(void (*handler)(int)) {
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_handler = handler}, present;
        sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &present) == 0 && present.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

/* In the child: a process group of its own, so that a terminal's signals come through the parent, once. */
static void become_rank(uint32_t rank, const child *c, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);
    setpgid(0, 0);
    pass_signals(rank ? SIG_IGN : SIG_DFL);
    if (!rank) return;
    int nothing = open("/dev/null", O_WRONLY);
    if (nothing >= 0) dup2(nothing, STDOUT_FILENO);
    if (c->text >= 0) dup2(c->text, STDERR_FILENO);
}

static void nap(void) { nanosleep(&(struct timespec){0, POLL_MS * 1000000}, NULL); }

/* Takes in a child that has ended, if there is one. */
static bool reap(children *all) {
    int how;
    pid_t pid = waitpid(-1, &how, WNOHANG);
    if (pid <= 0) return false;
    for (uint32_t r = 0; r < all->n; r++) {
        child *c = &all->list[r];
        if (c->pid != pid) continue;
        c->done = true;
        c->killed_by = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
        c->exit_status = WIFEXITED(how) ? WEXITSTATUS(how) : 3;
    }
    return true;
}

static void kill_all(children *all) {
    for (uint32_t r = 0; r < all->n; r++) {
        child *c = &all->list[r];
        c->killed_here = !c->done;
        if (!c->done) kill(c->pid, SIGKILL);
    }
}

/* Once a rank has failed the others get a moment to say so themselves. */
static void wait_all(children *all) {
    uint32_t left = all->n, waited_ms = 0;
    while (left) {
        bool failed = false, came = reap(all);
        left = 0;
        for (uint32_t r = 0; r < all->n; r++) {
            left += !all->list[r].done;
            failed = failed || (all->list[r].done && all->list[r].exit_status != 0);
        }
        if (came || !left) continue;
        nap();
        if (failed) waited_ms += POLL_MS;
        if (waited_ms == GRACE_MS) kill_all(all);
    }
}

/* What rank r wrote, if no rank before it wrote the same. */
static void tell(const children *all, uint32_t r, char (*texts)[TEXT_BYTES]) {
    const child *c = &all->list[r];
    texts[r][0] = '\0';
    ssize_t n = c->text < 0 ? 0 : pread(c->text, texts[r], TEXT_BYTES - 1, 0);
    texts[r][n > 0 ? n : 0] = '\0';
    if (c->killed_by && !c->killed_here) fprintf(stderr, "keel: rank %u was killed by signal %d\n", r, c->killed_by);
    bool news = texts[r][0] && !strstr(texts[r], "was ended by another rank");
    for (uint32_t before = 1; before < r; before++) news = news && strcmp(texts[before], texts[r]) != 0;
    bool same = c->exit_status == all->list[0].exit_status && c->exit_status < 3;
    if (news && !same) /* else rank 0 said the same of the input */
        fprintf(stderr, "rank %u: %s", r, texts[r]);
}

static keel_status parent_end(children *all, keel_error *err) {
    static const keel_status of_exit[] = {KEEL_OK, KEEL_REFUSED, KEEL_USAGE, KEEL_ABORTED};
    int worst = 0, first = all->list[0].exit_status;
    char(*texts)[TEXT_BYTES] = calloc(all->n, sizeof *texts);
    fflush(stdout);
    for (uint32_t r = 0; r < all->n; r++) {
        if (texts) tell(all, r, texts);
        if (all->list[r].exit_status > worst) worst = all->list[r].exit_status;
        if (all->list[r].text >= 0) close(all->list[r].text);
    }
    free(texts);
    if (!worst) return KEEL_OK;
    return fail_quietly(err, of_exit[first && first < 4 ? first : worst < 4 ? worst : 3]);
}

keel_status ranks_start(const args *a, ranks *r, keel_error *err) {
    *r = (ranks){0};
    children all = {.n = args_count32(a, OPT_TP, 1)};
    if (all.n <= 1) return KEEL_OK;
    if (all.n > MOST) return fail(err, KEEL_RANGE, "--tp %u: at most %d ranks on one machine", all.n, MOST);
    pid_t parent = getpid();
    snprintf(r->group, sizeof r->group, "%ld.%lld", (long)parent, (long long)time(NULL));
    fflush(stdout);
    sigset_t both, before; /* no signal is lost or strikes before rank 0 is there to get it */
    sigemptyset(&both), sigaddset(&both, SIGINT), sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &before);
    pass_signals(pass_on);
    for (uint32_t rank = 0; rank < all.n; rank++) {
        child *c = &all.list[rank];
        c->text = rank ? memfd_create("keel-rank", MFD_CLOEXEC) : -1;
        c->pid = fork();
        if (c->pid == 0) {
            r->rank = rank;
            become_rank(rank, c, parent);
            sigprocmask(SIG_SETMASK, &before, NULL);
            return KEEL_OK;
        }
        if (c->pid < 0) {
            all.n = rank;
            sigprocmask(SIG_SETMASK, &before, NULL);
            kill_all(&all);
            wait_all(&all);
            keel_group_remove(r->group);
            return fail(err, KEEL_NOMEM, "--tp: cannot make process %u: %s", rank, strerror(errno));
        }
        if (rank == 0) rank0 = c->pid;
    }
    r->parent = true;
    sigprocmask(SIG_SETMASK, &before, NULL);
    wait_all(&all);
    keel_group_remove(r->group);
    pass_signals(SIG_DFL);
    return parent_end(&all, err);
}

char *ranks_file(const char *file, uint32_t tp, uint32_t rank) {
    size_t bytes = strlen(file) + 24;
    char *path = malloc(bytes);
    if (path && tp <= 1) snprintf(path, bytes, "%s", file);
    if (path && tp > 1) snprintf(path, bytes, "%s.rank%u", file, rank);
    return path;
}
