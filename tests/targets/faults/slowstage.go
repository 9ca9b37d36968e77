package main

import (
	"context"
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// An imagePipeline decodes all images in one goroutine, for which sixteen resizers wait.
type imagePipeline struct {
	uploads, decoded chan *image
	storage          *sql.DB
}

type image struct {
	pixels string
	done   chan error
}

//go:noinline
func (p *imagePipeline) decode() {
	for upload := range p.uploads {
		upload.pixels, _ = query(context.Background(), p.storage, "10ms SELECT pixels")
		p.decoded <- upload
	}
}

//go:noinline
func (p *imagePipeline) resize() {
	for picture := range p.decoded {
		_, err := query(context.Background(), p.storage, "4ms INSERT "+picture.pixels[:3])
		picture.done <- err
	}
}

//go:noinline
func (p *imagePipeline) serveUpload(w http.ResponseWriter, r *http.Request) {
	upload := &image{done: make(chan error, 1)}
	p.uploads <- upload
	reply(w, "stored", <-upload.done)
}

func serveImages() {
	pipeline := &imagePipeline{
		uploads: make(chan *image),
		decoded: make(chan *image, 4),
		storage: openDatabase(50),
	}
	go pipeline.decode()
	for i := 0; i < 16; i++ {
		go pipeline.resize()
	}
	url := traffic.Serve(http.HandlerFunc(pipeline.serveUpload))
	traffic.Send(url, traffic.Load{Path: "/upload", Clients: 4})
}

func init() { register("slowstage", serveImages) }
