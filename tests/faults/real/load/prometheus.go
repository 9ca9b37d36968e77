package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ebpfprof.test/harness"
)

const (
	prometheusPort    = 9090
	targetPort        = 9101 // of the first target; the others have the next ones
	targets           = 40
	seriesOfTarget    = 200
	prometheusClients = 2
	prometheusPeriod  = 250 * time.Millisecond
)

const prometheusSettings = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: shop
  static_configs: [{targets: [%s]}]
`

var queries = []string{
	`sum by (instance) (rate(requests_total[10s]))`,
	`topk(5, sum by (path) (rate(requests_total[30s])))`,
	`max_over_time(up[1m])`,
}

// prometheus scrapes targets, and answers the queries of dashboards.
func prometheus(f *fleet) int {
	var addresses []string
	for target := 0; target < targets; target++ {
		address := fmt.Sprintf("127.0.0.1:%d", targetPort+target)
		listener, err := net.Listen("tcp", address)
		harness.Check(err)
		go http.Serve(listener, http.HandlerFunc(serveMetrics))
		addresses = append(addresses, fmt.Sprintf("%q", address))
	}
	settings := f.file("prometheus.yml", fmt.Sprintf(prometheusSettings, strings.Join(addresses, ",")))
	pid := f.run(true, "prometheus", "--config.file", settings,
		"--storage.tsdb.path", f.folder("data"),
		"--web.listen-address", fmt.Sprintf("127.0.0.1:%d", prometheusPort))
	await(func() error {
		number, err := query(queries[0])
		if err == nil && number < targets {
			err = fmt.Errorf("%d of %d targets were scraped twice", number, targets)
		}
		return err
	})
	repeat(prometheusClients, prometheusPeriod, func(client, number int) {
		query(queries[(client+number)%len(queries)])
	})
	return pid
}

func serveMetrics(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixMilli()
	for series := 0; series < seriesOfTarget; series++ {
		fmt.Fprintf(w, "requests_total{path=\"/items/%d\",code=\"200\"} %d\n", series, now*int64(series)%1_000_000_000)
	}
}

// query asks for the last minute, and returns the number of series.
func query(text string) (int, error) {
	end := time.Now().Unix()
	values := url.Values{
		"query": {text}, "start": {fmt.Sprint(end - 60)}, "end": {fmt.Sprint(end)}, "step": {"1"},
	}
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query_range?%s",
		prometheusPort, values.Encode()))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	var result struct {
		Data struct{ Result []json.RawMessage }
	}
	err = json.Unmarshal(body, &result)
	return len(result.Data.Result), err
}
