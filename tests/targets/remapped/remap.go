//go:build withcgo

package main

/*
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void remap(void) {
	char line[512], permissions[8], path[256], own[256] = "";
	uintptr_t start, limit;
	if (readlink("/proc/self/exe", own, sizeof own - 1) < 0)
		abort();
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps)) {
		path[0] = 0;
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &start, &limit, permissions, path) < 4)
			continue;
		if (permissions[2] != 'x' || strcmp(path, own) != 0)
			continue;
		size_t size = limit - start;
		void *copy = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(copy, (void *)start, size);
		mprotect(copy, size, PROT_READ | PROT_EXEC);
		mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start);
	}
	fclose(maps);
}
*/
import "C"

func remap() { C.remap() }
