//go:build go1.25

package main

import _ "unsafe" // go:linkname

// mutex is runtime.mutex without static lock ranking (runtime/runtime2.go). The upper bits of key
// hold the thread that fell asleep last.
type mutex struct {
	key uintptr
}

const mutexFlags = 0x3ff // mutexMMask of runtime/lock_spinbit.go

//go:linkname lock runtime.lock
func lock(l *mutex)

//go:linkname unlock runtime.unlock
func unlock(l *mutex)

//go:linkname systemstack runtime.systemstack
func systemstack(fn func())

//go:linkname usleep runtime.usleep
func usleep(micros uint32)

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// stackLarge begins with its lock, which the runtime holds when it allocates a large stack.
//
//go:linkname stackLarge runtime.stackLarge
var stackLarge mutex
