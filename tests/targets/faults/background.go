package main

import (
	"context"
	"database/sql"
	"net/http"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A weatherPage is fast. In the background a goroutine asks a slow remote for forecasts again and
// again, one waits for a message that rarely comes, and one sleeps for hours.
type weatherPage struct {
	database  *sql.DB
	remote    *http.Client
	remoteURL string
	forecast  atomic.Value
	alerts    *rowsConn
}

//go:noinline
func (p *weatherPage) pollForecast() {
	for range time.Tick(time.Second) {
		text, _ := get(p.remote, p.remoteURL+"/800ms/forecast")
		p.forecast.Store(text)
	}
}

//go:noinline
func (p *weatherPage) awaitAlerts() {
	for {
		alert, err := p.alerts.exchange("4h SUBSCRIBE alerts")
		if err != nil {
			return
		}
		p.forecast.Store(alert)
	}
}

//go:noinline
func (p *weatherPage) archiveDaily() {
	for {
		time.Sleep(24 * time.Hour)
		query(context.Background(), p.database, "50ms INSERT INTO archive")
	}
}

//go:noinline
func (p *weatherPage) serveWeather(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), p.database, "6ms SELECT * FROM weather")
	forecast, _ := p.forecast.Load().(string)
	reply(w, row+forecast, err)
}

func serveWeather() {
	alerts, err := dialRows(startPeer("database"))
	harness.Check(err)
	page := &weatherPage{
		database:  openDatabase(20),
		remote:    &http.Client{},
		remoteURL: startPeer("backend"),
		alerts:    alerts,
	}
	go page.awaitAlerts()
	go page.pollForecast()
	go page.archiveDaily()
	url := traffic.Serve(http.HandlerFunc(page.serveWeather))
	traffic.Send(url, traffic.Load{Path: "/weather", PerSecond: 100})
}

func init() { register("background", serveWeather) }
