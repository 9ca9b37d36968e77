// Exptrace reads an execution trace with golang.org/x/exp/trace, which complains about each event
// that can't be. It prints how many events of each kind there are, one kind a line; goroutines that
// change their state count as "Goroutine", others as the kind that the package calls them.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/exp/trace"
)

func main() {
	counts, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for kind, count := range counts {
		fmt.Println(kind, count)
	}
}

func read(path string) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := trace.NewReader(bufio.NewReaderSize(file, 1<<20))
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for {
		event, err := reader.ReadEvent()
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("after %v: %w", counts, err)
		}
		counts[kindOf(event)]++
	}
}

func kindOf(event trace.Event) string {
	if event.Kind() == trace.EventStateTransition &&
		event.StateTransition().Resource.Kind == trace.ResourceGoroutine {
		return "Goroutine"
	}
	return event.Kind().String()
}
