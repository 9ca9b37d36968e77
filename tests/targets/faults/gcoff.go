package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A csvExport makes tables. With GOGC=off nothing of them is ever freed.
type csvExport struct{ rows int }

//go:noinline
func (c *csvExport) table(name string) []byte {
	var text bytes.Buffer
	writer := csv.NewWriter(&text)
	for i := 0; i < c.rows; i++ {
		writer.Write([]string{name, fmt.Sprint(i), fmt.Sprint(i * i), "delivered"})
	}
	writer.Flush()
	return text.Bytes()
}

func (c *csvExport) ServeHTTP(w http.ResponseWriter, r *http.Request) { w.Write(c.table(r.URL.Path)) }

func init() { register("gcoff", serveExports) }

func serveExports() { underLoad(&csvExport{rows: 800}, traffic.Load{PerSecond: 150}) }
