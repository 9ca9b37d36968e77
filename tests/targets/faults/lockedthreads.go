package main

import (
	"fmt"
	"net/http"
	"runtime"

	"ebpfprof.test/harness/traffic"
)

// A sceneRenderer draws by a library that wants all its calls from one thread, as OpenGL does. The
// thread of a request has a context of its own, too: each shape is two switches of threads.
type sceneRenderer struct{ shapes chan sceneShape }

// A sceneStudio has a renderer for each request.
type sceneStudio struct{ free chan *sceneRenderer }

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

func (s *sceneStudio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	renderer := <-s.free
	fmt.Fprint(w, renderer.draw(200))
	s.free <- renderer
}

func init() { register("lockedthreads", serveScenes) }

func serveScenes() {
	studio := &sceneStudio{free: make(chan *sceneRenderer, 8)}
	for i := 0; i < cap(studio.free); i++ {
		renderer := &sceneRenderer{shapes: make(chan sceneShape)}
		go renderer.drawAll()
		studio.free <- renderer
	}
	underLoad(studio, traffic.Load{Clients: 4})
}
