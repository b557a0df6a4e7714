/* SPDX-License-Identifier: Apache-2.0 */
/* The weight cache: what its key depends on, what it refuses to serve, and who may build at a time. What is served is
 * held against weights that were packed in memory (tests/load/weights_test.c holds those against coordinates). */
#include "core/buf.h"
#include "core/mem.h"
#include "load/weight_cache.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 6, COLUMNS = 64, RANKS = 4, PIECES = 2 };

/* A checkpoint file, a cache and what one rank asks of it. */
typedef struct place {
    char dir[32], source[96], cache[96];
    uint16_t whole[PIECES][ROWS * COLUMNS];
    int64_t dim[2];
    weight_piece piece[PIECES];
    graph g;
    manifest_source file;
    json_t *config;
    weight_cache_options o;
    weight_cache_request r;
} place;

static void ask_for(place *p, uint32_t tp, uint32_t rank) {
    p->dim[0] = ROWS;
    p->dim[1] = COLUMNS / tp;
    p->g = (graph){.architecture = "Test", .tp = tp, .ep = 1, .rank = rank, .n_layers = 1};
    for (int i = 0; i < PIECES; i++) {
        p->piece[i] = (weight_piece){.name = i ? "down" : "o",
                                     .key = i ? "l0.down.weight" : "l0.o.weight",
                                     .dtype = DTYPE_BF16,
                                     .rank = 2,
                                     .dim = p->dim,
                                     .slice = {1, rank * p->dim[1], p->dim[1], COLUMNS},
                                     .inner = {.dim = -1},
                                     .whole = p->whole[i]};
    }
    p->r = (weight_cache_request){&p->g, weight_recipe_find("cpu"), p->dir, p->piece, PIECES, &p->file, 1};
}

static void write_source(place *p, uint16_t seed) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    for (int i = 0; i < PIECES; i++) {
        for (int e = 0; e < ROWS * COLUMNS; e++) p->whole[i][e] = (uint16_t)(seed + i * 1000 + e);
    }
    assert_int_equal(file_write(p->source, p->whole, sizeof p->whole, &err), KEEL_OK);
    assert_int_equal(file_identify(p->source, &p->file.id, &err), KEEL_OK);
}

static int place_make(void **state) {
    place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/keel_cache_XXXXXX");
    if (!mkdtemp(p->dir)) return -1;
    snprintf(p->source, sizeof p->source, "%s/model.safetensors", p->dir);
    snprintf(p->cache, sizeof p->cache, "%s/a/cache", p->dir);
    p->file.name = "model.safetensors";
    write_source(p, 1);
    p->config = json_pack("{s:i,s:s}", "hidden_size", ROWS, "model_type", "test");
    p->o = (weight_cache_options){.dir = p->cache, .config = p->config};
    ask_for(p, RANKS, 1);
    *state = p;
    return 0;
}

static int place_remove(void **state) {
    place *p = *state;
    char command[128];
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", p->dir, p->dir);
    int status = system(command);
    json_decref(p->config);
    free(p);
    return status;
}

/* What a rank must hold, by coordinates. */
static void check_data(const place *p, const safetensors *data) {
    assert_int_equal(safetensors_count(data), PIECES);
    for (int i = 0; i < PIECES; i++) {
        const safetensor *t = safetensors_find(data, p->piece[i].name);
        assert_non_null(t);
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t c = 0; c < p->dim[1]; c++) {
                uint16_t got;
                memcpy(&got, (const char *)t->data + (r * p->dim[1] + c) * 2, 2);
                assert_int_equal(got, p->whole[i][r * COLUMNS + p->g.rank * p->dim[1] + c]);
            }
        }
    }
}

static weight_cache_result get(const place *p) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    weight_cache_result result;
    safetensors *data = NULL;
    if (weight_cache_get(&p->o, &p->r, &data, &result, &err) != KEEL_OK) fail_msg("%s", err.detail);
    check_data(p, data);
    safetensors_close(data);
    return result;
}

static keel_error refused(const place *p, keel_status want) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    weight_cache_result result;
    safetensors *data = NULL;
    keel_status s = weight_cache_get(&p->o, &p->r, &data, &result, &err);
    if (s != want) fail_msg("%s, not %s: %s", keel_status_name(s), keel_status_name(want), err.detail);
    assert_null(data);
    return err;
}

static char *path_in(const place *p, const char *key, const char *name) {
    char *path;
    assert_true(asprintf(&path, "%s/%s/%s", p->cache, key, name) > 0);
    return path;
}

static buf slurp(const char *path) {
    char *text;
    size_t n;
    buf b = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (file_read(path, 1 << 20, &text, &n, &err) != KEEL_OK) fail_msg("%s", err.detail);
    buf_put(&b, text, n);
    keel_free(text);
    return b;
}

/* Files of the entry's folder: "lock" and what is named. */
static void only_files(const place *p, const char *key, size_t want) {
    char *folder = path_in(p, key, "");
    size_t n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) {
        n += f->d_name[0] != '.';
        if (strstr(f->d_name, ".tmp.")) fail_msg("%s is left", f->d_name);
    }
    closedir(d);
    assert_int_equal(n, want);
    free(folder);
}

static void test_built_once(void **state) {
    place *p = *state;
    weight_cache_result first = get(p), second = get(p);
    assert_true(first.built && first.used && !second.built && second.used);
    assert_string_equal(first.note, "");
    assert_string_equal(first.key, second.key);
    assert_int_equal(first.n_tensors, PIECES);
    assert_int_equal(first.bytes, PIECES * ROWS * COLUMNS / RANKS * 2);
    only_files(p, first.key, 3);
}

/* The recipe's code changes, its declared version does not. */
static void pack_otherwise(const weight_piece *w, void *out) {
    slice_copy(w, out);
    uint8_t *last = (uint8_t *)out + weight_recipe_bytes(weight_recipe_find("cpu"), w) - 1;
    *last ^= w->rank == 3; /* in pieces of rank 3 only */
}
static bool store_all(const weight_piece *w) {
    (void)w;
    return true;
}

static void test_fingerprint(void **state) {
    (void)state;
    const weight_recipe *cpu = weight_recipe_find("cpu");
    weight_recipe other[5] = {*cpu, *cpu, *cpu, *cpu, *cpu};
    other[0].version++;
    other[1].name = "cpv";
    other[2].arch = "cpu2";
    other[3].pack = pack_otherwise;
    other[4].stores = store_all;
    char hex[6][SHA256_HEX];
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(weight_recipe_fingerprint(cpu, hex[5], &err), KEEL_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(weight_recipe_fingerprint(&other[i], hex[i], &err), KEEL_OK);
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < i; j++) assert_string_not_equal(hex[i], hex[j]);
    }
    assert_int_equal(weight_recipe_fingerprint(cpu, hex[0], &err), KEEL_OK);
    assert_string_equal(hex[0], hex[5]);
    assert_null(weight_recipe_find("none"));
}

/* Every input by itself changes the key. */
static void test_key(void **state) {
    place *p = *state;
    enum { CASES = 17 };
    char key[CASES][SHA256_HEX];
    char moved[96];
    weight_recipe recipe = *weight_recipe_find("cpu");
    json_t *config = json_deep_copy(p->config);
    json_object_set_new(config, "rope_theta", json_real(1e6));
    snprintf(moved, sizeof moved, "%s/moved", p->dir);
    assert_int_equal(mkdir(moved, 0755), 0);
    for (int i = 0; i < CASES; i++) {
        ask_for(p, RANKS, 1);
        p->o.config = p->config;
        recipe = *weight_recipe_find("cpu");
        if (i == 1) p->o.config = config;
        if (i == 2) p->g.tp = 8;
        if (i == 3) p->g.rank = 2, p->piece[0].slice.first = p->piece[1].slice.first = 32;
        if (i == 4) p->g.ep = 2;
        if (i == 5) p->g.vocab_parallel = true;
        if (i == 6) p->r.checkpoint = moved;
        if (i == 7) p->g.n_layers = 2;
        if (i == 8) p->piece[1].key = "l1.down.weight";
        if (i == 9) p->piece[1].dtype = DTYPE_F16;
        if (i == 10) recipe.version = 2, p->r.recipe = &recipe;
        if (i == 11) recipe.pack = pack_otherwise, p->r.recipe = &recipe;
        if (i == 12) p->r.n_pieces = 1;
        if (i == 13) p->piece[1].slice.first = 0;
        if (i == 14) p->piece[1].slice.whole = COLUMNS / 2;
        if (i >= 15) p->piece[1].inner = p->piece[1].slice, p->piece[1].slice.dim = -1;
        if (i == 16) p->piece[1].inner.first = 0;
        weight_cache_result result;
        safetensors *data;
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(weight_cache_get(&p->o, &p->r, &data, &result, &err), KEEL_OK);
        assert_true(result.built);
        safetensors_close(data);
        memcpy(key[i], result.key, SHA256_HEX);
        for (int j = 0; j < i; j++) {
            if (strcmp(key[i], key[j]) == 0) fail_msg("case %d has the key of case %d", i, j);
        }
    }
    json_t *same = json_loads("{\"model_type\": \"test\",   \"hidden_size\":6}", 0, NULL); /* another spelling */
    ask_for(p, RANKS, 1);
    p->o.config = same;
    weight_cache_result result = get(p);
    assert_string_equal(result.key, key[0]);
    json_decref(same);
    json_decref(config);
}

static void test_changed_source(void **state) {
    place *p = *state;
    weight_cache_result first = get(p);
    struct stat before;
    assert_int_equal(stat(p->source, &before), 0);
    /* other bytes in the same file, and its modification time put back */
    for (int e = 0; e < ROWS * COLUMNS; e++) p->whole[0][e] ^= 0x55;
    int fd = open(p->source, O_WRONLY);
    assert_int_equal(write(fd, p->whole, sizeof p->whole), sizeof p->whole);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    file_id old = p->file.id;
    assert_int_equal(file_identify(p->source, &p->file.id, NULL), KEEL_OK);
    assert_true(old.mtime_ns == p->file.id.mtime_ns && old.inode == p->file.id.inode && old.bytes == p->file.id.bytes);
    weight_cache_result second = get(p);
    assert_true(second.built);
    assert_non_null(strstr(second.note, "model.safetensors has changed"));
    assert_string_equal(second.key, first.key);
    assert_false(get(p).built);
    write_source(p, 9); /* another file in its place */
    assert_true(get(p).built);
    p->file.name = "other.safetensors";
    assert_true(get(p).built);
    assert_false(get(p).built);
}

/* Changes of a file that is there: XOR a byte, cut, append, remove, put a link or a pipe in its place. */
typedef enum damage_kind { FLIP, CUT, APPEND, REMOVE, LINK, PIPE } damage_kind;

static void damage(const char *path, damage_kind kind, size_t at) {
    buf b = slurp(path);
    if (kind == FLIP) b.data[at] ^= 1;
    if (kind == APPEND) buf_u8(&b, 0);
    unlink(path);
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (kind == FLIP || kind == APPEND) assert_int_equal(file_write(path, b.data, b.len, &err), KEEL_OK);
    if (kind == CUT) assert_int_equal(file_write(path, b.data, at, &err), KEEL_OK);
    if (kind == LINK) assert_int_equal(symlink("/dev/null", path), 0);
    if (kind == PIPE) assert_int_equal(mkfifo(path, 0600), 0);
    buf_free(&b);
}

static void test_damage(void **state) {
    place *p = *state;
    weight_cache_result clean = get(p);
    char *data = path_in(p, clean.key, "rank1.safetensors"), *about = path_in(p, clean.key, "rank1.json");
    buf want = slurp(data), told = slurp(about);
    size_t tested = 0;
    for (int which = 0; which < 2; which++) {
        const char *path = which ? about : data;
        size_t n = which ? told.len : want.len;
        for (int kind = FLIP; kind <= PIPE; kind++) {
            for (size_t at = 0; at < n; at += kind == FLIP ? 13 : kind == CUT ? 97 : n, tested++) {
                damage(path, kind, at);
                weight_cache_result result = get(p);       /* whose data is checked, whatever was damaged */
                bool by_name = which == 1 && kind == FLIP; /* a flip in the date or in white space does no harm */
                if (!result.built && !by_name) fail_msg("%s: damage %d at %zu was not seen", path, kind, at);
                bool quiet = kind == REMOVE && which == 1; /* without a manifest there is no entry to speak of */
                if (result.built && !quiet && !result.note[0]) fail_msg("damage %d at %zu: no note", kind, at);
                buf now = slurp(data);
                assert_int_equal(now.len, want.len);
                assert_memory_equal(now.data, want.data, want.len);
                buf_free(&now);
                only_files(p, clean.key, 3);
            }
        }
    }
    assert_true(tested > 100);
    buf_free(&want);
    buf_free(&told);
    free(data);
    free(about);
}

/* A flip of any bit of the data is seen. */
static void test_every_data_byte(void **state) {
    place *p = *state;
    weight_cache_result clean = get(p);
    cache_entry e;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(cache_entry_name(p->cache, clean.key, 1, &e, &err), KEEL_OK);
    buf b = slurp(e.data_path);
    for (size_t at = b.len - clean.bytes; at < b.len; at += 5) {
        b.data[at] ^= 0x10;
        assert_int_equal(file_write(e.data_path, b.data, b.len, &err), KEEL_OK);
        b.data[at] ^= 0x10;
        assert_int_equal(cache_entry_load(&e, &err), KEEL_OK);
        assert_int_equal(e.state, ENTRY_READY);
        assert_int_equal(cache_entry_verify(&e, 1, NULL, NULL, &err), KEEL_OK);
        if (e.state != ENTRY_DAMAGED) fail_msg("byte %zu", at);
    }
    buf_free(&b);
    cache_entry_free(&e);
}

/* What a killed process leaves is swept up by the next that builds. */
static void test_leftovers(void **state) {
    place *p = *state;
    weight_cache_result clean = get(p);
    char *about = path_in(p, clean.key, "rank1.json");
    char *left[] = {path_in(p, clean.key, "rank1.safetensors.tmp.4711"), path_in(p, clean.key, "rank1.json.tmp.4711")};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(file_write(left[i], "x", 1, NULL), KEEL_OK);
        free(left[i]);
    }
    unlink(about);
    assert_true(get(p).built);
    only_files(p, clean.key, 3);
    free(about);
}

static void test_in_the_way(void **state) {
    place *p = *state;
    weight_cache_result clean = get(p);
    char *data = path_in(p, clean.key, "rank1.safetensors");
    assert_int_equal(unlink(data), 0);
    assert_int_equal(mkdir(data, 0755), 0);
    keel_error err = refused(p, KEEL_USAGE);
    assert_non_null(strstr(err.detail, "rank1.safetensors: is a folder"));
    assert_int_equal(rmdir(data), 0);
    assert_true(get(p).built);
    free(data);
    char blocked[128];
    snprintf(blocked, sizeof blocked, "%s/more", p->source); /* below a file */
    p->o.dir = blocked;
    err = refused(p, KEEL_USAGE);
    assert_non_null(strstr(err.detail, "model.safetensors: is in the way of a folder"));
    p->r.checkpoint = "/nonexistent/model";
    p->o.dir = p->cache;
    err = refused(p, KEEL_MISSING);
    assert_non_null(strstr(err.detail, "/nonexistent/model"));
}

static void test_link_as_lock(void **state) {
    place *p = *state;
    weight_cache_result clean = get(p);
    char *lock = path_in(p, clean.key, "lock");
    unlink(lock);
    assert_int_equal(symlink(p->source, lock), 0);
    assert_non_null(strstr(refused(p, KEEL_IO).detail, "lock"));
    free(lock);
}

/* A full disk: the size of files is limited (SIGXFSZ ignored, as in the program). */
static void test_no_space(void **state) {
    place *p = *state;
    struct rlimit old, little = {200, 200};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    little.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    keel_error err = KEEL_ERROR_INITIALIZER;
    weight_cache_result result;
    safetensors *data = NULL;
    keel_status s = weight_cache_get(&p->o, &p->r, &data, &result, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(s, KEEL_IO);
    assert_non_null(strstr(err.detail, "rank1.safetensors"));
    only_files(p, result.key, 1);
    assert_true(get(p).built);
}

static void test_read_only(void **state) {
    place *p = *state;
    if (geteuid() == 0) skip(); /* root may write anyway */
    weight_cache_result clean = get(p);
    char *folder = path_in(p, clean.key, "");
    assert_int_equal(chmod(folder, 0555), 0);
    assert_false(get(p).built); /* enough to use what is there */
    ask_for(p, RANKS, 2);
    assert_int_equal(chmod(p->cache, 0555), 0);
    assert_non_null(strstr(refused(p, KEEL_IO).detail, "check the permissions"));
    free(folder);
}

static void test_memory_short(void **state) {
    place *p = *state;
    keel_status s = KEEL_NOMEM;
    uint64_t n = 0;
    while (s != KEEL_OK) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        weight_cache_result result;
        safetensors *data = NULL;
        mem_fail_after(++n);
        s = weight_cache_get(&p->o, &p->r, &data, &result, &err);
        mem_fail_after(0);
        if (s != KEEL_OK && s != KEEL_NOMEM) fail_msg("allocation %u: %s", (unsigned)n, err.detail);
        if (s == KEEL_OK) check_data(p, data);
        safetensors_close(data);
    }
    assert_true(n > 10);
    assert_false(get(p).built);
}

typedef struct crowd {
    pthread_mutex_t lock;
    int now, most; /* converting */
    int built;
    int waits;
    keel_cache_phase stop_at; /* with stop */
    bool stop;
} crowd;

typedef struct member {
    crowd *all;
    place mine;
    bool inside;
    int waits;
    pthread_t thread;
} member;

static bool count_progress(void *user, uint32_t rank, keel_cache_phase phase, uint64_t done, uint64_t total) {
    member *m = user;
    assert(rank == m->mine.g.rank);
    pthread_mutex_lock(&m->all->lock);
    if (phase == KEEL_CACHE_CONVERTING && !m->inside) m->inside = true, m->all->now++;
    if (phase == KEEL_CACHE_CONVERTING && done == total) m->inside = false, m->all->now--;
    if (m->all->now > m->all->most) m->all->most = m->all->now;
    if (phase == KEEL_CACHE_WAITING) m->all->waits++, __atomic_fetch_add(&m->waits, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&m->all->lock);
    struct timespec t = {.tv_nsec = 15000000};
    if (phase == KEEL_CACHE_CONVERTING && done < total) nanosleep(&t, NULL);
    return !(m->all->stop && phase == m->all->stop_at && (done || phase != KEEL_CACHE_CONVERTING));
}

static void *member_main(void *argument) {
    member *m = argument;
    weight_cache_result result = get(&m->mine);
    __atomic_fetch_add(&m->all->built, result.built, __ATOMIC_RELAXED);
    return NULL;
}

static void start_crowd(const place *p, crowd *all, member *list, unsigned n, unsigned jobs, bool same) {
    pthread_mutex_init(&all->lock, NULL);
    for (unsigned i = 0; i < n; i++) {
        list[i] = (member){.all = all, .mine = *p};
        place *mine = &list[i].mine;
        ask_for(mine, 32, same ? 3 : i);
        mine->o.jobs = jobs;
        mine->o.progress = count_progress;
        mine->o.user = &list[i];
        assert_int_equal(pthread_create(&list[i].thread, NULL, member_main, &list[i]), 0);
    }
}

static void join_crowd(const crowd *all, const member *list, unsigned n) {
    for (unsigned i = 0; i < n; i++) pthread_join(list[i].thread, NULL);
    assert_int_equal(all->now, 0);
}

static void test_jobs(void **state) {
    place *p = *state;
    enum { N = 10 };
    static member list[N];
    for (unsigned jobs = 1; jobs <= 3; jobs++) {
        crowd all = {.built = 0};
        snprintf(p->cache, sizeof p->cache, "%s/jobs%u", p->dir, jobs);
        p->o.dir = p->cache;
        start_crowd(p, &all, list, N, jobs, false);
        join_crowd(&all, list, N);
        assert_int_equal(all.built, N);
        assert_int_equal(all.most, jobs); /* never more; and with ten that want to, as many as may */
        assert_true(all.waits > 0);
    }
}

/* All find the entry missing, since we share its lock with them until everybody waits to have it alone: one builds. */
static void test_same_entry(void **state) {
    place *p = *state;
    enum { N = 6 };
    static member list[N];
    crowd all = {.built = 0};
    ask_for(p, 32, 3);
    weight_cache_result clean = get(p);
    char *about = path_in(p, clean.key, "rank3.json"), *path = path_in(p, clean.key, "lock");
    file_lock lock = {.fd = -1};
    bool taken;
    assert_int_equal(unlink(about), 0);
    assert_int_equal(file_lock_try(path, true, &lock, &taken, NULL), KEEL_OK);
    assert_true(taken);
    start_crowd(p, &all, list, N, 4, true);
    for (unsigned waiting = 0; waiting < N;) {
        struct timespec t = {.tv_nsec = 1000000};
        nanosleep(&t, NULL);
        waiting = 0;
        for (unsigned i = 0; i < N; i++) waiting += __atomic_load_n(&list[i].waits, __ATOMIC_RELAXED) > 0;
    }
    assert_false(file_exists(about));
    file_lock_release(&lock);
    join_crowd(&all, list, N);
    assert_int_equal(all.built, 1);
    assert_int_equal(all.most, 1);
    free(about);
    free(path);
}

/* A progress function that says stop: nothing half-written stays, no lock is held. */
static void test_stop(void **state) {
    place *p = *state;
    crowd all = {.stop = true, .stop_at = KEEL_CACHE_CONVERTING};
    pthread_mutex_init(&all.lock, NULL);
    static member m;
    m = (member){.all = &all, .mine = *p};
    ask_for(&m.mine, RANKS, 1);
    m.mine.o.progress = count_progress;
    m.mine.o.user = &m;
    (void)refused(&m.mine, KEEL_ABORTED);
    weight_cache_result clean = get(p);
    assert_true(clean.built);
    only_files(p, clean.key, 3);
    all.stop_at = KEEL_CACHE_CHECKING;
    (void)refused(&m.mine, KEEL_ABORTED);
    assert_false(get(p).built);
    /* somebody has the entry for himself, and does not let go */
    char *path = path_in(p, clean.key, "lock");
    file_lock lock = {.fd = -1};
    bool taken;
    assert_int_equal(file_lock_try(path, false, &lock, &taken, NULL), KEEL_OK);
    assert_true(taken);
    all.stop_at = KEEL_CACHE_WAITING;
    (void)refused(&m.mine, KEEL_ABORTED);
    file_lock_release(&lock);
    assert_false(get(p).built);
    free(path);
}

typedef struct seen {
    int n;
    char states[8][16];
    uint32_t ranks[8];
    char why[8][512];
} seen;

static bool see(void *user, const keel_cache_entry *e) {
    seen *s = user;
    snprintf(s->states[s->n], sizeof s->states[0], "%s", e->state);
    snprintf(s->why[s->n], sizeof s->why[0], "%s", e->why);
    s->ranks[s->n] = e->rank;
    if (e->model[0]) assert_true(e->tp == RANKS && strcmp(e->recipe, "cpu-1") == 0 && e->bytes > 0);
    return ++s->n < 8;
}

static seen list(const place *p, bool verify) {
    seen s = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (weight_cache_list(p->cache, verify, see, &s, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return s;
}

static void test_list(void **state) {
    place *p = *state;
    char key[3][SHA256_HEX];
    assert_int_equal(list(p, true).n, 0); /* no folder yet */
    for (uint32_t rank = 3; rank-- > 0;) {
        ask_for(p, RANKS, rank);
        memcpy(key[rank], get(p).key, SHA256_HEX);
    }
    seen s = list(p, true);
    assert_int_equal(s.n, 3);
    for (int i = 0; i < 3; i++) assert_true(s.ranks[i] == (uint32_t)i && strcmp(s.states[i], "ready") == 0);
    char *data = path_in(p, key[0], "rank0.safetensors"), *lock = path_in(p, key[1], "lock");
    buf b = slurp(data);
    damage(data, FLIP, b.len - 1);
    buf_free(&b);
    file_lock held = {.fd = -1};
    bool taken;
    assert_int_equal(file_lock_try(lock, false, &held, &taken, NULL), KEEL_OK);
    s = list(p, false);
    assert_string_equal(s.states[0], "ready"); /* its data is not read */
    assert_string_equal(s.states[1], "busy");
    s = list(p, true);
    assert_string_equal(s.states[0], "damaged");
    assert_non_null(strstr(s.why[0], "SHA-256"));
    assert_string_equal(s.states[2], "ready");
    file_lock_release(&held);
    write_source(p, 5);
    assert_string_equal(list(p, false).states[2], "stale");
    unlink(p->source);
    assert_non_null(strstr(list(p, false).why[2], "is not there"));
    char *about = path_in(p, key[2], "rank2.json");
    unlink(about);
    s = list(p, false);
    assert_int_equal(s.n, 3);
    assert_string_equal(s.states[0], "incomplete"); /* its model is not known: first */
    free(about);
    free(data);
    free(lock);
}

#define PLACE_TEST(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        PLACE_TEST(test_built_once),     PLACE_TEST(test_fingerprint), PLACE_TEST(test_key),
        PLACE_TEST(test_changed_source), PLACE_TEST(test_damage),      PLACE_TEST(test_every_data_byte),
        PLACE_TEST(test_leftovers),      PLACE_TEST(test_in_the_way),  PLACE_TEST(test_link_as_lock),
        PLACE_TEST(test_no_space),       PLACE_TEST(test_read_only),   PLACE_TEST(test_memory_short),
        PLACE_TEST(test_jobs),           PLACE_TEST(test_same_entry),  PLACE_TEST(test_stop),
        PLACE_TEST(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
