package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

const albumFiles = 50

// newAlbum returns a folder of pictures.
func newAlbum() string {
	folder, err := os.MkdirTemp("", "album-")
	harness.Check(err)
	for i := 0; i < albumFiles; i++ {
		picture := bytes.Repeat([]byte{byte(i)}, (i+1)<<12)
		harness.Check(os.WriteFile(filepath.Join(folder, fmt.Sprint(i)), picture, 0o600))
	}
	return folder
}

func init() { register("fileserver", serveAlbum) }

// serveAlbum serves files that are read from the disk's cache.
func serveAlbum() {
	underLoad(http.FileServer(http.Dir(newAlbum())), traffic.Load{PerSecond: 300, Keys: albumFiles})
}
