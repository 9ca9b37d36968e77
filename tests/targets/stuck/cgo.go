//go:build withcgo

package main

/*
#include <pthread.h>
#include <unistd.h>

static int one(void) { return 1; }

static void *wait_for_ever(void *unused) {
	for (;;)
		pause();
	return unused;
}

static int start_thread(void) {
	pthread_t thread;
	return pthread_create(&thread, 0, wait_for_ever, 0);
}
*/
import "C"

import "ebpfprof.test/harness"

func useC() { harness.Assert(C.one() == 1) }

func startThread() { harness.Assert(C.start_thread() == 0) }
