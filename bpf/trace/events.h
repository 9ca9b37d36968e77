/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The events of a trace, in rings that overwrite what is oldest: each has a fixed number of slots
 * in memory that ebpfprof maps. A writer takes the next number, fills the slot of that number, and
 * writes the number last. So a reader sees which events are there whole, and how many it missed.
 */
#ifndef EBPFPROF_EVENTS_H
#define EBPFPROF_EVENTS_H

#define MAX_RINGS 256
#define CACHE_LINE_BYTES 64

/*
 * What happened. Up to ASSIST_END as ScheduleMoment in symbolizer/codeanalysis/schedule_sites.py;
 * from TASK_BEGIN to LOG see annotations.h.
 */
enum event_kind {
    PARK,
    SUSPEND,
    READY,
    NET_READY,
    RUN,
    CREATE,
    EXIT,
    YIELD,
    PREEMPT,
    SWITCH,
    GC_BEGIN,
    GC_END,
    STOP_WORLD,
    START_WORLD,
    ASSIST,
    ASSIST_END,
    THREAD_OFF,
    THREAD_ON,
    THREAD_WAKE,
    TASK_BEGIN,
    TASK_END,
    REGION_BEGIN,
    REGION_END,
    LOG,
    TEXT_PIECE,
};

struct event {
    u64 number; /* from 1 on, in its ring */
    u64 at_ns;
    u64 goid;  /* of whom it happens to; 0: nobody; of THREAD_WAKE see in_interrupt() */
    u64 by;    /* goid of the goroutine that the thread runs; 0: none; of PARK see waited_for.h; of
                  THREAD_WAKE the tid of who wakes it; of TASK_BEGIN the parent task */
    u64 stack; /* key in stacks; 0: none; of THREAD_WAKE, with `more`, the name of what wakes it */
    u64 more;  /* see more_of(); of THREAD_OFF in a system call its number, of the thread's; of an
                  annotation the task */
    u32 tid;
    s32 p; /* id of the thread's P; NO_P: it has none; of TEXT_PIECE the number of its bytes */
    u32 cpu;
    u8 kind;   /* enum event_kind */
    u8 reason; /* of a wait: runtime.waitReason; of STOP_WORLD: runtime.stwReason; of an annotation:
                  the number of pieces of its name; of TEXT_PIECE: it is of the message */
    u8 is_made; /* of YIELD: the goroutine was made to; of SWITCH: the other is new; of THREAD_OFF:
                   the thread was; of THREAD_WAKE: an interrupt wakes it; of an annotation: the
                   number of pieces of its message; of TEXT_PIECE: its text could not be read, and
                   goid is the address */
    u8 is_exit; /* of SWITCH: the goroutine ends with it; of THREAD_OFF: it is in a system call; of
                   THREAD_WAKE: a thread of the process wakes it */
};
#define NO_P (-1)

struct ring {
    u64 taken; /* numbers */
    u64 rest_of_line[CACHE_LINE_BYTES / 8 - 1];
};

struct rings {
    u32 count; /* one for each processor that there is, up to MAX_RINGS */
    u32 mask;  /* slots of each, minus 1 */
};

BPF_ARRAY(ring_shape, struct rings, 1);
BPF_ARRAY(rings, struct ring, MAX_RINGS);
BPF_ARRAY(events, struct event, 1); /* more once it is loaded */

/* A slot to be filled and then given to end_event with the number. */
static __always_inline struct event *begin_event(u64 *number) {
    int first = 0;
    struct rings *shape = ring_shape.lookup(&first);
    if (!shape || !shape->count)
        return NULL;
    u32 cpu = bpf_get_smp_processor_id();
    int index = cpu % shape->count;
    struct ring *ring = rings.lookup(&index);
    if (!ring)
        return NULL;
    u64 taken = __sync_fetch_and_add(&ring->taken, 1);
    int slot = index * (shape->mask + 1) + (taken & shape->mask);
    struct event *event = events.lookup(&slot);
    if (!event)
        return NULL;
    *number = taken + 1;
    event->number = 0;
    event->at_ns = bpf_ktime_get_ns();
    event->cpu = cpu;
    return event;
}

static __always_inline void end_event(struct event *event, u64 number) {
    asm volatile("" ::: "memory"); /* x86 stores in the order of the program */
    event->number = number;
}

#endif
