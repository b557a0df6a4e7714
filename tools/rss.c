/* SPDX-License-Identifier: Apache-2.0 */
#include "rss.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t rss_peak_bytes(void) {
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? (uint64_t)use.ru_maxrss * 1024 : 0;
}

/* proc(5), clear_refs: 5 sets the high-water mark, which getrusage reads, to the present value. */
bool rss_peak_reset(void) {
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = write(fd, "5", 1) == 1;
    close(fd);
    return done;
}
