package main

import (
	"context"
	"database/sql"
	"time"
)

// A scheduler runs a few jobs at their times: no requests come.
type scheduler struct{ database *sql.DB }

//go:noinline
func (s *scheduler) runEvery(period time.Duration, statement string) {
	for range time.Tick(period) {
		query(context.Background(), s.database, statement)
	}
}

func runJobs() {
	jobs := &scheduler{database: openDatabase(5)}
	go jobs.runEvery(100*time.Millisecond, "2ms SELECT * FROM queue")
	go jobs.runEvery(time.Second, "40ms DELETE FROM sessions")
	go jobs.runEvery(5*time.Second, "300ms INSERT INTO reports")
	go jobs.runEvery(time.Hour, "2s VACUUM")
}

func init() { register("cron", runJobs) }
