package main

import (
	"context"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"unsafe"

	"ebpfprof.test/harness"
)

// Two values of labels in pages of the program's file that no code reads, with none nearby.
var unread = [2 << 20]byte{
	1 << 19: 'w', 'a', 'i', 't', 's',
	3 << 19: 's', 'p', 'i', 'n', 's',
}

const unreadBytes = 5

var (
	unreadID     int64
	unreadValues = make(chan int)
)

// unreadLabels makes a string of these bytes without reading them.
func unreadLabels(at *byte) pprof.LabelSet {
	value := struct {
		data  *byte
		bytes int
	}{at, unreadBytes}
	return pprof.Labels("unread", *(*string)(unsafe.Pointer(&value)))
}

// unreadable is memory whose page faults are never resolved: that of a file, or else by
// userfaultfd(2) (include/uapi/linux/userfaultfd.h).
func unreadable(file string) *byte {
	const (
		userfaultfd     = 323
		apiVersion      = 0xaa
		ioctlAPI        = 0xc018aa3f
		ioctlRegister   = 0xc020aa00
		registerMissing = 1
		pageBytes       = 4096
	)
	if file != "" {
		fd, err := syscall.Open(file, syscall.O_RDONLY, 0)
		if err != nil {
			panic(err)
		}
		page, err := syscall.Mmap(fd, 0, pageBytes, syscall.PROT_READ, syscall.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		return &page[0]
	}
	page, err := syscall.Mmap(-1, 0, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic(err)
	}
	fd, _, errno := syscall.Syscall(userfaultfd, syscall.O_CLOEXEC, 0, 0)
	api := [3]uint64{apiVersion}
	if errno == 0 {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, ioctlAPI, uintptr(unsafe.Pointer(&api)))
	}
	place := [4]uint64{uint64(uintptr(unsafe.Pointer(&page[0]))), pageBytes, registerMissing}
	if errno == 0 {
		_, _, errno = syscall.Syscall(
			syscall.SYS_IOCTL, fd, ioctlRegister, uintptr(unsafe.Pointer(&place)))
	}
	if errno != 0 {
		panic(errno)
	}
	return &page[0]
}

// waitUnread returns when the goroutine waits, with a label in that memory.
func waitUnread(at *byte) {
	go pprof.Do(context.Background(), unreadLabels(at), func(context.Context) {
		atomic.StoreInt64(&unreadID, harness.GoroutineID())
		for {
			receive(unreadValues)
		}
	})
	poll(&unreadID, 1)
	harness.AwaitBlocked(unreadID)
}

func spinUnread() {
	pprof.Do(context.Background(), unreadLabels(&unread[3<<19]), func(context.Context) {
		for {
		}
	})
}
