package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"ebpfprof.test/harness"
	"golang.org/x/sys/unix"
)

const (
	caddyPort     = 8080
	caddyUpstream = 9001
	caddyClients  = 16
	pagePeriod    = 12 * time.Millisecond
	filePeriod    = 40 * time.Millisecond
	answerBytes   = 4 << 10
	fileBytes     = 64 << 10
	files         = 6000
)

const caddySettings = `{
	admin off
	auto_https off
}
http://127.0.0.1:%d {
	%s
}
`

// caddyProxy asks a proxy for the pages of an upstream.
func caddyProxy(f *fleet) int {
	page := bytes.Repeat([]byte("p"), answerBytes)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", caddyUpstream))
	harness.Check(err)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(page)
	}))
	return caddy(f, fmt.Sprintf("reverse_proxy 127.0.0.1:%d", caddyUpstream), "", pagePeriod)
}

// caddyFiles asks for files that are not in memory yet.
func caddyFiles(f *fleet) int {
	folder := f.folder("site")
	text := bytes.Repeat([]byte("f"), fileBytes)
	for number := 0; number < files; number++ {
		file, err := os.Create(filepath.Join(folder, fmt.Sprint(number)))
		harness.Check(err)
		_, err = file.Write(text)
		harness.Check(err)
		harness.Check(file.Close())
	}
	unix.Sync()
	for number := 0; number < files; number++ {
		file, err := os.Open(filepath.Join(folder, fmt.Sprint(number)))
		harness.Check(err)
		harness.Check(unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
		harness.Check(file.Close())
	}
	return caddy(f, fmt.Sprintf("root * %s\n\tfile_server", folder), "/%d", filePeriod)
}

// caddy runs it with a directive, and asks for a path, which may have a number.
func caddy(f *fleet, directive, path string, period time.Duration) int {
	settings := f.file("Caddyfile", fmt.Sprintf(caddySettings, caddyPort, directive))
	pid := f.run(true, "caddy", "run", "--config", settings, "--adapter", "caddyfile")
	url := fmt.Sprintf("http://127.0.0.1:%d", caddyPort)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: caddyClients}}
	order := rand.New(rand.NewSource(1)).Perm(files)
	get := func(number int) error {
		address := url
		if path != "" {
			address += fmt.Sprintf(path, order[number%files])
		}
		answer, err := client.Get(address)
		if err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		return err
	}
	await(func() error { return get(0) })
	repeat(caddyClients, period, func(client, number int) {
		get(client + number*caddyClients)
	})
	return pid
}
