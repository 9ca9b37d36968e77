/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What a program reports of its own work by runtime/trace: tasks, regions and log messages.
 * NewTask, Task.End, WithRegion and Log call the runtime even if Go's own tracer is off, which then
 * returns at once (runtime/trace/annotation.go, Go 1.19 to 1.27). A probe is behind the stack
 * check: all arguments are in registers there, and the return address is on top of the stack.
 *
 * An event is followed by the pieces of its texts, which have the same time and thread.
 */
#ifndef EBPFPROF_ANNOTATIONS_H
#define EBPFPROF_ANNOTATIONS_H

#include "common/memory.h"
#include "probes/fp_unwind.h"
#include "probes/goroutine_stack.h"
#include "probes/target.h"
#include "trace/events.h"
#include "trace/traced.h"

#define TEXT_BYTES 32   /* of a text in one event: its goid, by, stack and more */
#define TEXT_PIECES 32  /* 1,024 bytes, as many as Go's tracer keeps (runtime/tracestring.go) */
#define REGION_BEGINS 0 /* runtime/trace.regionStartCode */

/* A string as Go passes it. */
struct go_text {
    u64 address;
    u64 bytes;
};

/* How many events a text takes. */
static __always_inline u64 pieces_of(const struct go_text *text) {
    u64 bytes = text->bytes;
    if (bytes > TEXT_PIECES * TEXT_BYTES)
        bytes = TEXT_PIECES * TEXT_BYTES;
    return (bytes + TEXT_BYTES - 1) / TEXT_BYTES;
}

/* Writes the pieces of a text behind its event, which happened at `at_ns`. */
static __always_inline void record_text(const struct go_text *text, bool is_message, u64 at_ns) {
    for (u32 i = 0; i < TEXT_PIECES; i++) {
        u64 number = 0, from = i * TEXT_BYTES, bytes = text->bytes - from;
        if (from >= text->bytes)
            return;
        struct event *piece = begin_event(&number);
        if (!piece)
            return;
        OWN_REGISTER(bytes);
        if (bytes > TEXT_BYTES)
            bytes = TEXT_BYTES;
        piece->at_ns = at_ns;
        piece->tid = bpf_get_current_pid_tgid();
        piece->p = bytes;
        piece->kind = TEXT_PIECE;
        piece->reason = is_message;
        piece->is_exit = 0;
        /* A text of the program's file that it never used itself may be in no page of it yet. */
        piece->is_made = read_user(&piece->goid, bytes, (void *)(text->address + from)) != 0;
        if (piece->is_made)
            piece->goid = text->address + from;
        end_event(piece, number);
    }
}

/* The stack of g, which called the function that the probe is in. */
static __always_inline u64 calling_stack(const struct pt_regs *ctx, u64 g, u32 target_index,
                                         const struct target *target) {
    struct group group = {.target = target_index, .kind = KIND_TRACE};
    struct walker *walker = take_walker(&group);
    u64 key = 0, bp = ctx->bp, sp = ctx->sp;
    OWN_REGISTER(bp);
    OWN_REGISTER(sp);
    if (!walker)
        return 0;
    struct start *start = &walker->start;
    start->bp = target->callback.none;
    start->frame.bp = bp;
    start->frame.return_pc = word_at(sp);
    if (read_user(&start->bounds, sizeof(start->bounds), (void *)g) == 0)
        key = keep_stack(walker, target);
    give_walker(walker);
    return key;
}

/* Writes the event of an annotation of the kind `kind`, and its texts. */
static __always_inline void record_annotation(struct pt_regs *ctx, u32 kind, u32 target_index,
                                              const struct target *target,
                                              const struct traced *traced) {
    u64 number = 0, task = ctx->ax, bx = ctx->bx, cx = ctx->cx, di = ctx->di, si = ctx->si;
    struct go_text name = {}, message = {};
    u64 m = word_at(ctx->r14 + target->m_offset);
    u64 g = word_at(m + target->curg_offset);
    u64 parent = 0;
    if (kind == TASK_BEGIN)
        parent = bx;
    if (kind == TASK_BEGIN || kind == REGION_BEGIN) {
        name.address = cx;
        name.bytes = di;
    }
    if (kind == REGION_BEGIN && bx != REGION_BEGINS)
        kind = REGION_END;
    if (kind == LOG) {
        name.address = bx;
        name.bytes = cx;
        message.address = di;
        message.bytes = si;
    }
    if (!g)
        return;
    u64 stack = calling_stack(ctx, g, target_index, target);
    struct event *event = begin_event(&number);
    if (!event)
        return;
    u64 at_ns = event->at_ns;
    event->goid = goid_of(g, traced);
    event->by = parent;
    event->stack = stack;
    event->more = task;
    event->tid = bpf_get_current_pid_tgid();
    event->p = p_at(m + traced->p_offset, traced);
    event->kind = kind;
    event->reason = pieces_of(&name);
    event->is_made = pieces_of(&message);
    event->is_exit = 0;
    end_event(event, number);
    record_text(&name, false, at_ns);
    record_text(&message, true, at_ns);
}

#endif
