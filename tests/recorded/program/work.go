package main

import (
	"context"
	"hash/crc32"
	"runtime/pprof"
	"sort"
	"strings"
)

type shape interface{ area() float64 }

type square struct{ side float64 }

type circle struct{ radius float64 }

func (s square) area() float64 { return s.side * s.side }

func (c *circle) area() float64 { return 3.14159 * c.radius * c.radius }

// Inlined, with what it calls, into the loop that calls it.
func mix(sum, number uint32) uint32 { return rotate(sum) ^ number*0x9E3779B1 }

func rotate(sum uint32) uint32 { return sum<<13 | sum>>19 }

func numbers(count int) uint32 {
	sum := uint32(1)
	for number := range count {
		sum = mix(sum, uint32(number))
	}
	return sum
}

func sorted(count int) int {
	values := make([]int, count)
	seed := uint32(7)
	for index := range values {
		seed = mix(seed, uint32(index))
		values[index] = int(seed >> 4)
	}
	sort.Slice(values, func(i, j int) bool { return values[i] < values[j] })
	return values[count/2]
}

func words(count int) int {
	var text strings.Builder
	counts := map[string]int{}
	for range count {
		text.WriteString("some words to count ")
	}
	for _, word := range strings.Fields(text.String()) {
		counts[word]++
	}
	return counts["words"] + len(strings.ToUpper(text.String()))
}

func areas(count int) float64 {
	shapes := []shape{square{2}, &circle{1}}
	sum := 0.0
	for index := range count {
		sum += shapes[index%2].area()
	}
	return sum
}

//go:noinline
func fibonacci(n int) int {
	if n < 2 {
		return n
	}
	return fibonacci(n-1) + fibonacci(n-2)
}

func compute(rounds int) int {
	table := make([]byte, 1<<16)
	sum := 0
	for range rounds {
		sum += int(numbers(400_000)) + sorted(3000) + words(500) + int(areas(200_000))
		sum += fibonacci(22)
		sum += deep(150, func() { sum += int(numbers(300_000)) })
		labels := pprof.Labels("tenant", "blue", "step", "checksum")
		pprof.Do(context.Background(), labels, func(context.Context) {
			for range 100 {
				sum += int(crc32.ChecksumIEEE(table))
			}
		})
	}
	return sum
}
