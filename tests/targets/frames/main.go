// Frames asks its own Go runtime for the frames of its addresses.
//
// It reads addresses in hexadecimal from standard input, one a line, and prints for each what a
// profile would show: "PC address", then a line "function\tfile\tline\tstart line" for each
// frame, innermost first. Like Go, it omits wrappers.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	_ "unsafe" // for linkname
)

// runtime/pprof uses it for the last address of a stack, which runtime.CallersFrames alone does
// not expand.
//
//go:linkname expandFinalInlineFrame runtime/pprof.runtime_expandFinalInlineFrame
func expandFinalInlineFrame(stack []uintptr) []uintptr

func main() {
	exercise()
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer output.Flush()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		pc, err := strconv.ParseUint(input.Text(), 16, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintf(output, "PC %x\n", pc)
		// The runtime takes return addresses and looks up the byte before.
		frames := runtime.CallersFrames(expandFinalInlineFrame([]uintptr{uintptr(pc) + 1}))
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if frame.PC == 0 {
				continue // Nothing but wrappers.
			}
			name, startLine := symbol(&frame)
			fmt.Fprintf(output, "%s\t%s\t%d\t%d\n", name, frame.File, frame.Line, startLine)
		}
	}
}

// The rest, with generics.go, is code for frames: generic functions, methods that wrappers call,
// closures, and inlining a few levels deep.

func level3(values []int) int {
	if len(values) == 0 {
		panic("no values")
	}
	return values[len(values)-1]
}
func level2(values []int) int { return level3(values) + level3(values[:1]) }
func level1(values []int) int { return level2(values) * 2 }

func exercise() {
	var mutex sync.Mutex
	mutex.Lock()
	defer mutex.Unlock()
	name, values := sums()
	values = append(values, 3, 1)
	sort.Slice(values, func(i, j int) bool { return values[i] < values[j] })
	if level1(values) < 0 || strings.Contains(name, "x") {
		panic(strings.Join(os.Args, " "))
	}
}
