package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

const (
	longestStart = 60 * time.Second
	shownOfLog   = 4096
)

// A fleet is the servers that run, and the folder of their files.
type fleet struct {
	programs, scratch string
	enter             []string
	isEnding          atomic.Bool
}

// run starts a server, which must not end before this process does.
func (f *fleet) run(isExplained bool, name string, arguments ...string) int {
	words := append([]string{filepath.Join(f.programs, name)}, arguments...)
	if isExplained {
		words = append(append([]string{}, f.enter...), words...)
	}
	output, err := os.CreateTemp(f.scratch, name+"-*.log")
	harness.Check(err)
	command := exec.Command(words[0], words[1:]...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	harness.Check(command.Start())
	go func() {
		err := command.Wait()
		if !f.isEnding.Load() {
			text, _ := os.ReadFile(output.Name())
			harness.Check(fmt.Errorf("%s ended: %v\n%s", name, err, text[max(0, len(text)-shownOfLog):]))
		}
	}()
	return command.Process.Pid
}

// folder makes a folder for files.
func (f *fleet) folder(name string) string {
	path := filepath.Join(f.scratch, name)
	harness.Check(os.MkdirAll(path, 0o755))
	return path
}

// file writes a file, and returns its path.
func (f *fleet) file(name, text string) string {
	path := filepath.Join(f.scratch, name)
	harness.Check(os.WriteFile(path, []byte(text), 0o644))
	return path
}

// await tries until it succeeds, or ends this process: the servers do not say when they are ready.
func await(try func() error) {
	err := try()
	for begin := time.Now(); err != nil; err = try() {
		if time.Since(begin) > longestStart {
			harness.Check(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// repeat has clients do something again and again. Each begins at most once in a period, and waits
// for its answer before it begins again.
func repeat(clients int, period time.Duration, do func(client, number int)) {
	for client := 0; client < clients; client++ {
		go func() {
			time.Sleep(period * time.Duration(client) / time.Duration(clients)) // not all at once
			ticker := time.NewTicker(period)
			for number := 0; ; number++ {
				do(client, number)
				<-ticker.C
			}
		}()
	}
}
