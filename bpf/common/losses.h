/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Each way to lose an event or a part of one, with the text that reports it.
 * ebpfprof/kernel/losses.py reads this list, too: LOSS(name, "what was lost, and why"),
 * where the text follows "incomplete: 12".
 */
LOSS(waits_full, "waits not timed: the table of waiting goroutines was full")
LOSS(totals_full, "events not counted: the table of distinct stacks was full")
LOSS(stacks_full, "events not counted: no room to store one more distinct stack")
LOSS(goroutine_unreadable, "events not counted: the goroutine's own record could not be read")
LOSS(releaser_unreadable, "releases not counted: the goroutine that released could not be read")
LOSS(locks_full, "waits charged to the last release alone: the table of locks was full")
LOSS(sleepers_full, "waits for runtime locks not timed: the table of sleeping threads was full")
LOSS(stack_moving, "wakes perhaps not counted: the goroutine's stack was just being moved")
LOSS(stack_unreadable, "events with a stack cut short: a part of it could not be read")
LOSS(stack_stale, "events that may lack callers: they follow a recovered panic, before Go 1.21")
LOSS(stack_left, "events with a stack cut short: it leads out of the goroutine's own stack")
LOSS(labels_unreadable, "events without the goroutine's labels: they could not be read")
LOSS(label_sets_full, "events without the goroutine's labels: the table of label sets was full")
LOSS(labelled_full, "events without the goroutine's labels: half of the table of stacks had some")
LOSS(labels_many, "events with labels left out: the goroutine has more than 8")
LOSS(label_cut, "events with a label cut short: the key has over 64 bytes, or the value over 128")
LOSS(samples_full, "CPU samples not counted: no room for one more distinct stack")
LOSS(unlearned_full, "CPU samples with a stack cut short: it was not learnt yet how to unwind it")
LOSS(locks_many, "waits and releases charged to other locks: half of the table of stacks had locks")
LOSS(object_size_unreadable, "allocations not counted: the size of the object could not be read")
LOSS(births_full, "sampled objects not followed: they came faster than they could be read")
LOSS(c_stacks_many, "sleeps in C without its callers: they came faster than they could be unwound")
LOSS(pairs_full, "wakes not counted: no room for one more pair of stacks, who waited and who woke")
LOSS(waker_unreadable, "wakes without the stack of who woke: it could not be read")
LOSS(lengths_full, "events counted without their length: the table of lengths was full")
