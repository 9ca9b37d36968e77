/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What BCC and the kernel give a BPF program, for one that runs in a test: maps, helpers, a clock,
 * and memory of a target, which the test makes up. The maps have few rows and are searched one by
 * one; forget_maps() empties them.
 */
#include "linux/types.h"

#define LOOP_MASK 0
#define VERIFIED_ONCE

struct piece {
    u64 start;
    u64 size_bytes;
    const u8 *bytes;
};

#define MAX_PIECES 512
static struct piece pieces[MAX_PIECES];
static u64 piece_count;

void set_memory(const struct piece *made, u64 count) {
    for (piece_count = 0; piece_count < count && piece_count < MAX_PIECES; piece_count++)
        pieces[piece_count] = made[piece_count];
}

/* As copy_from_user_nofault (mm/maccess.c) and its callers: what can't be read is made 0. */
static long made_up_read(void *to, u32 size_bytes, const void *from) {
    u64 address = (u64)from;
    if (!size_bytes)
        return 0;
    for (u64 i = 0; i < piece_count; i++) {
        u64 at = address - pieces[i].start;
        if (at < pieces[i].size_bytes && size_bytes <= pieces[i].size_bytes - at) {
            __builtin_memcpy(to, pieces[i].bytes + at, size_bytes);
            return 0;
        }
    }
    __builtin_memset(to, 0, size_bytes);
    return -14;
}

static long own_read(void *to, u32 size_bytes, const void *from) {
    __builtin_memcpy(to, from, size_bytes);
    return 0;
}

#define BPF_FUNC_probe_read_user made_up_read
#define BPF_FUNC_probe_read_kernel own_read

static struct {
    void *rows;
    u64 size_bytes;
} all_maps[64];
static u64 map_count;

void forget_maps(void) {
    for (u64 i = 0; i < map_count; i++)
        __builtin_memset(all_maps[i].rows, 0, all_maps[i].size_bytes);
}

#define FORGETS(name)                                                                              \
    __attribute__((constructor)) static void name##_forgets(void) {                                \
        all_maps[map_count].rows = name##_rows;                                                    \
        all_maps[map_count++].size_bytes = sizeof(name##_rows);                                    \
    }

#define BPF_ARRAY(name, type, size)                                                                \
    static type name##_rows[size];                                                                 \
    static type *name##_lookup(const int *index) {                                                 \
        return *index >= 0 && *index < (size) ? &name##_rows[*index] : NULL;                       \
    }                                                                                              \
    static const struct {                                                                          \
        type *(*lookup)(const int *);                                                              \
    } name = {name##_lookup};                                                                      \
    FORGETS(name)

#define BPF_PERCPU_ARRAY(name, type, size) BPF_ARRAY(name, type, size)

#define BPF_HASH(name, key_type, type, size)                                                       \
    static struct {                                                                                \
        bool is_used;                                                                              \
        key_type key;                                                                              \
        type value;                                                                                \
    } name##_rows[size];                                                                           \
    static type *name##_lookup(const key_type *key) {                                              \
        for (u64 i = 0; i < (size) && name##_rows[i].is_used; i++)                                 \
            if (name##_rows[i].key == *key)                                                        \
                return &name##_rows[i].value;                                                      \
        return NULL;                                                                               \
    }                                                                                              \
    static long name##_insert(const key_type *key, const type *value) {                            \
        if (name##_lookup(key))                                                                    \
            return -17;                                                                            \
        for (u64 i = 0; i < (size); i++) {                                                         \
            if (!name##_rows[i].is_used) {                                                         \
                name##_rows[i].is_used = true;                                                     \
                name##_rows[i].key = *key;                                                         \
                name##_rows[i].value = *value;                                                     \
                return 0;                                                                          \
            }                                                                                      \
        }                                                                                          \
        return -7;                                                                                 \
    }                                                                                              \
    static long name##_update(const key_type *key, const type *value) {                            \
        type *known = name##_lookup(key);                                                          \
        if (!known)                                                                                \
            return name##_insert(key, value);                                                      \
        *known = *value;                                                                           \
        return 0;                                                                                  \
    }                                                                                              \
    static const struct {                                                                          \
        type *(*lookup)(const key_type *);                                                         \
        long (*insert)(const key_type *, const type *);                                            \
        long (*update)(const key_type *, const type *);                                            \
    } name = {name##_lookup, name##_insert, name##_update};                                        \
    FORGETS(name)

/* A ring buffer with room for one record, the last one. */
static u64 record[(320 << 10) / 8];
static u64 record_bytes;

static void *made_up_reserve(u32 size_bytes) {
    record_bytes = size_bytes;
    return size_bytes <= sizeof(record) ? record : NULL;
}

static void made_up_submit(void *data, u64 flags) {
}

#define BPF_RINGBUF_OUTPUT(name, pages)                                                            \
    static const struct {                                                                          \
        void *(*ringbuf_reserve)(u32);                                                             \
        void (*ringbuf_submit)(void *, u64);                                                       \
    } name = {made_up_reserve, made_up_submit}

const void *last_record(u64 *size_bytes) {
    *size_bytes = record_bytes;
    return record;
}

struct bpf_pidns_info {
    u32 pid;
    u32 tgid;
};

static u64 now_ns = 1000;

static u64 bpf_ktime_get_ns(void) {
    return now_ns;
}

static u32 bpf_get_prandom_u32(void) {
    return 0;
}

static u64 bpf_get_attach_cookie(void *ctx) {
    return 0;
}

static void *bpf_get_current_task_btf(void) {
    return NULL;
}

/* The test's task is its registers. */
static void *bpf_task_pt_regs(void *task) {
    return task;
}

static long bpf_get_stack(void *ctx, void *to, u32 size_bytes, u64 flags) {
    return -14;
}

static long bpf_get_ns_current_pid_tgid(u64 device, u64 inode, struct bpf_pidns_info *ids,
                                        u32 size_bytes) {
    return -22;
}
