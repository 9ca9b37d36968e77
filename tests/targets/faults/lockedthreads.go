package main

import (
	"fmt"
	"net/http"
	"runtime"

	"ebpfprof.test/harness/traffic"
)

// A sceneRenderer draws by a library that wants all calls from one thread, as OpenGL does. The
// thread of a request has its own context, too: each shape is two switches of threads.
type sceneRenderer struct{ shapes chan sceneShape }

type sceneShape struct {
	corners int
	drawn   chan int
}

//go:noinline
func (s *sceneRenderer) drawAll() {
	runtime.LockOSThread()
	for shape := range s.shapes {
		shape.drawn <- shape.corners * 2
	}
}

//go:noinline
func (s *sceneRenderer) draw(shapes int) (pixels int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	drawn := make(chan int)
	for i := 0; i < shapes; i++ {
		s.shapes <- sceneShape{i, drawn}
		pixels += <-drawn
	}
	return pixels
}

func (s *sceneRenderer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, s.draw(200))
}

func init() { register("lockedthreads", serveScenes) }

func serveScenes() {
	renderer := &sceneRenderer{shapes: make(chan sceneShape)}
	go renderer.drawAll()
	underLoad(renderer, traffic.Load{Clients: 4})
}
