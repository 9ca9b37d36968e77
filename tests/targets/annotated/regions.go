//go:build withregions

package main

import (
	"context"
	"runtime/trace"
)

// Go's tracer hears of these only while it is on.
func init() {
	begun = func(ctx context.Context) func() {
		trace.Logf(ctx, "begins", "%d", 1)
		return trace.StartRegion(ctx, "started").End
	}
}
