// Twogo is a Go program that opens a Go library, the target golibrary: a process with two Go
// runtimes. The argument is the path of the library.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static int work(const char *path) {
	void *library = dlopen(path, RTLD_NOW);
	if (!library)
		return 1;
	void (*start)(void) = dlsym(library, "Work");
	start();
	return 0;
}
*/
import "C"

import (
	"os"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

var mu sync.Mutex

func share() {
	for {
		mu.Lock()
		time.Sleep(time.Millisecond)
		mu.Unlock()
	}
}

func main() {
	path := C.CString(os.Args[1])
	harness.Assert(C.work(path) == 0)
	go share()
	go share()
	harness.Ready()
	harness.AwaitEnd()
}
