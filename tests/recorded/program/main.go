// Command program is the program of the recorded inputs: what it does was recorded once. It is
// started again, and does nothing, to turn those inputs into profiles: the same binary has the
// same addresses. So any change here wants new recordings (python -m tests.recorded.record).
//
// It prints `ready PID` and obeys lines on its standard input, each answered by one line:
//
//	contend N   N rounds of waits of many kinds
//	hammer N    for N ms, hand-overs between two goroutines, while three others fight for a lock
//	compute N   N rounds of work for the processor
//	leave       starts goroutines that wait from then on
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	waitFromTheBeginning()
	time.Sleep(time.Millisecond) // until they wait
	fmt.Printf("ready %d\n", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, number, _ := strings.Cut(lines.Text(), " ")
		times, _ := strconv.Atoi(number)
		switch verb {
		case "contend":
			contend(times)
		case "hammer":
			hammer(time.Duration(times) * time.Millisecond)
		case "compute":
			fmt.Fprintln(os.Stderr, compute(times))
		case "leave":
			leave()
		default:
			fmt.Printf("unknown %q\n", verb)
			os.Exit(1)
		}
		fmt.Printf("did %s\n", verb)
	}
}
