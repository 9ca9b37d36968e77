// Command shop is the program of the recorded commands: a service with a lock that is too hot, which
// can also rest, hang and leak. What it does was recorded once; any change here requires new
// recordings (python -m tests.recorded.record).
//
// It prints `ready PID` and obeys lines on its standard input, each answered by one line:
//
//	serve N      N requests of each of three tenants, over HTTP
//	rest N       nothing, for N ms
//	deadlock     two goroutines wait for each other's lock, for good
//	hang         goroutines wait for a lock whose holder waits for a message that never comes
//	leak N       N goroutines send results that nobody wants
//	read N       N goroutines read from pipes, each on a thread of its own
//	allocate N   keeps N orders in memory, and drops as many
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
	shop := openShop()
	time.Sleep(time.Millisecond) // until its goroutines wait
	fmt.Printf("ready %d\n", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, number, _ := strings.Cut(lines.Text(), " ")
		times, _ := strconv.Atoi(number)
		switch verb {
		case "serve":
			shop.serve(times)
		case "rest":
			shop.rest(time.Duration(times) * time.Millisecond)
		case "deadlock":
			deadlock()
		case "hang":
			shop.hang()
		case "leak":
			leak(times)
		case "read":
			readPipes(times)
		case "allocate":
			allocate(times)
		default:
			fmt.Printf("unknown %q\n", verb)
			os.Exit(1)
		}
		fmt.Printf("did %s\n", verb)
	}
}
