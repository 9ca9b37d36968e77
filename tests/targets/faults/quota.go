package main

import (
	"database/sql"
	"fmt"
	"html/template"
	"net/http"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A pollenPage uses a fifth of the CPU time that its container may use.
type pollenPage struct {
	page     *template.Template
	stations *sql.DB
}

type pollenDay struct {
	Name   string
	Grains int
}

//go:noinline
func (p *pollenPage) forecast(station string) []pollenDay {
	var days []pollenDay
	for i := 0; i < 14; i++ {
		days = append(days, pollenDay{fmt.Sprint(station, " in ", i, " days"), 12 + i%5})
	}
	return days
}

func (p *pollenPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	station, err := query(r.Context(), p.stations, "3ms SELECT name FROM stations")
	if err != nil {
		reply(w, "", err)
		return
	}
	harness.Check(p.page.Execute(w, p.forecast(station)))
}

func init() { register("quota", servePollen) }

func servePollen() {
	text := "<ul>{{range .}}<li>{{.Name}}: {{.Grains}} grains</li>{{end}}</ul>"
	page := template.Must(template.New("pollen").Parse(text))
	underLoad(&pollenPage{page, openDatabase(50)}, traffic.Load{PerSecond: 150})
}
