// Forks makes a child that is a copy of it (fork without exec). In both, goroutines hand numbers to
// each other.
//
// A fork copies one thread only, so all work is on one processor, without other threads: run it
// with GOMAXPROCS=1 and GOGC=off.
//
// Protocol: it prints "ready PID". To "hand" it answers "handed SUM". To "fork" it answers
// "forked PID": the child hands numbers on, and then waits for SIGCONT (it stops itself), hands on
// once more, and ends. To "join" it answers "joined STATUS" once the child has ended: 0 if all its
// sums were right. It ends when its input closes.
package main

import (
	"fmt"
	"syscall"

	"ebpfprof.test/harness"
)

const (
	count    = 300
	alarm    = 600 // seconds until a child that hangs is killed
	expected = count * (count + 1) / 2
)

var numbers, answers = make(chan int), make(chan int)

func main() {
	go func() {
		for {
			sum := 0
			for i := 0; i < count; i++ {
				sum += <-numbers
			}
			answers <- sum
		}
	}()
	hand() // allocates what it needs once
	harness.Ready()
	child := 0
	for harness.Next() {
		switch harness.Command() {
		case "hand":
			fmt.Println("handed", hand())
		case "fork":
			child = fork()
			fmt.Println("forked", child)
		case "join":
			var status syscall.WaitStatus
			_, err := syscall.Wait4(child, &status, 0, nil)
			harness.Check(err)
			fmt.Println("joined", int(status))
		}
	}
}

func hand() int {
	for i := 1; i <= count; i++ {
		numbers <- i
	}
	return <-answers
}

func fork() int {
	child, _, failed := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	if failed != 0 {
		panic(failed)
	}
	if child != 0 {
		return int(child)
	}
	syscall.RawSyscall(syscall.SYS_ALARM, alarm, 0, 0)
	status := 0
	for i := 0; i < 2; i++ {
		if hand() != expected {
			status = 1
		}
		if i == 0 {
			self, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
			syscall.RawSyscall(syscall.SYS_KILL, self, uintptr(syscall.SIGSTOP), 0)
		}
	}
	syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(status), 0, 0)
	return 0
}
