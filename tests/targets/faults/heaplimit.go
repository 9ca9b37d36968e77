package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"ebpfprof.test/harness/traffic"
)

// A routePlanner keeps a graph that nearly fills GOMEMLIMIT, so that the collector runs again as
// soon as it has finished.
type routePlanner struct{ stops []*routeStop }

type routeStop struct {
	name string
	next [6]*routeStop
}

//go:noinline
func (p *routePlanner) plan(from int) []*routeStop {
	var route []*routeStop
	stop := p.stops[from%len(p.stops)]
	for i := 0; i < 2000; i++ {
		stop = stop.next[(from+i)%len(stop.next)]
		route = append(route, stop)
	}
	return route
}

//go:noinline
func (p *routePlanner) describe(route []*routeStop) string {
	var names []string
	for _, stop := range route {
		names = append(names, strings.ToUpper(stop.name))
	}
	return strings.Join(names, "\n")
}

func (p *routePlanner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text := p.describe(p.plan(keyOf(r) * 997))
	fmt.Fprint(w, bytes.Count([]byte(text), []byte("\n")))
}

func newRoutePlanner(stops int) *routePlanner {
	planner := &routePlanner{stops: make([]*routeStop, stops)}
	for i := range planner.stops {
		planner.stops[i] = &routeStop{name: fmt.Sprintf("stop %d", i)}
	}
	for i, stop := range planner.stops {
		for j := range stop.next {
			stop.next[j] = planner.stops[(i*31+j*1009+1)%stops]
		}
	}
	return planner
}

func init() { register("heaplimit", serveRoutes) }

func serveRoutes() { underLoad(newRoutePlanner(800_000), traffic.Load{Clients: 4}) }
