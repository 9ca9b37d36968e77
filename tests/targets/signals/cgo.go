//go:build withcgo

package main

/*
static volatile unsigned long total;

static void spin(void) {
    for (unsigned long i = 0; i < 20000; i++)
        total += i;
}
*/
import "C"

func init() { works = append(works, inC) }

//go:noinline
func inC() { C.spin() }
