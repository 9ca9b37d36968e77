package main

import (
	"fmt"
	"html/template"
	"net/http"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A weatherPage uses a fifth of the CPU time that its container may use.
type weatherPage struct{ page *template.Template }

type weatherDay struct {
	Name        string
	Temperature int
}

//go:noinline
func (p *weatherPage) forecast(city string) []weatherDay {
	time.Sleep(3 * time.Millisecond) // what the service asks others
	var days []weatherDay
	for i := 0; i < 14; i++ {
		days = append(days, weatherDay{fmt.Sprint(city, " in ", i, " days"), 12 + i%5})
	}
	return days
}

func (p *weatherPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harness.Check(p.page.Execute(w, p.forecast(r.URL.Path[1:])))
}

func init() { register("quota", quota) }

func quota() {
	text := "<ul>{{range .}}<li>{{.Name}}: {{.Temperature}} degrees</li>{{end}}</ul>"
	page := template.Must(template.New("weather").Parse(text))
	underLoad(&weatherPage{page}, traffic.Load{PerSecond: 150})
}
