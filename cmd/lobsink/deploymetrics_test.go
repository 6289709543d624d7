package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/oracle"
)

// exported are the metrics of a run by name, each with its labels.
type exported map[string][]string

// descriptors collects what is registered, whether it has series yet or not.
type descriptors struct {
	prometheus.Registerer
	found exported
}

// described reads what prometheus.Desc says only as text.
var described = regexp.MustCompile(`^Desc\{fqName: "([a-z0-9_]+)", help: ".*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (d descriptors) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		m := described.FindStringSubmatch(desc.String())
		if m == nil {
			panic("a description in another form: " + desc.String())
		}
		labels := regexp.MustCompile(`[a-z_]+`).FindAllString(m[3], -1)
		for _, pair := range strings.Split(m[2], ",") {
			if name, _, ok := strings.Cut(pair, "="); ok {
				labels = append(labels, name)
			}
		}
		d.found[m[1]] = labels
	}
	return nil
}

func (d descriptors) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = d.Register(c)
	}
}

func (descriptors) Unregister(prometheus.Collector) bool { return true }

// exportedMetrics returns what `lobsink run` exports of its own, on any store.
func exportedMetrics() exported {
	d := descriptors{found: exported{}}
	d.MustRegister(buildInfo())
	consumer.NewMetrics(d)
	lobwriter.NewMetrics(d, "postgres")
	// It registers first, and then finds no database.
	_, _ = oracle.Open(context.Background(), oracle.Options{User: "nobody", Connect: "127.0.0.1:1/none", Registerer: d,
		Password: func(context.Context) (string, error) { return "none", nil }})
	return d.found
}

// series is a name of a metric as queries have it.
var series = regexp.MustCompile(`\blobsink_[a-z0-9_]+`)

// labels returns the labels of a series; ok tells whether anybody exports it.
func (e exported) labels(name string) (labels []string, ok bool) {
	if labels, ok = e[name]; ok {
		return labels, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(name, suffix); cut {
			if labels, ok := e[base]; ok {
				return labels, true
			}
		}
	}
	return nil, false
}

// targetLabels are those that Prometheus adds, and those of a histogram.
var targetLabels = []string{"job", "instance", "namespace", "le"}

// Where labels stand in a query, and where in what is printed of its result.
var (
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`)
	matchers = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	printed  = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}`)
)

// checkQuery checks names and labels of a query, and of text about its result.
func (e exported) checkQuery(t *testing.T, query, text string) {
	t.Helper()
	known := slices.Clone(targetLabels)
	for _, name := range series.FindAllString(query, -1) {
		labels, ok := e.labels(name)
		if !ok {
			t.Errorf("nothing exports %s: %s", name, query)
		}
		known = append(known, labels...)
	}
	var used []string
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		used = append(used, regexp.MustCompile(`[a-z_]+`).FindAllString(m[1], -1)...)
	}
	for _, m := range matchers.FindAllStringSubmatch(query, -1) {
		used = append(used, m[1])
	}
	for _, m := range printed.FindAllStringSubmatch(text, -1) {
		used = append(used, m[1])
	}
	for _, label := range used {
		if !slices.Contains(known, label) {
			t.Errorf("no metric has the label %s: %s %s", label, query, text)
		}
	}
}

func TestDeployMetricsOfRules(t *testing.T) {
	e := exportedMetrics()
	var file struct {
		Groups []struct {
			Rules []struct {
				Expr        string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readDeployed(t, "prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			e.checkQuery(t, r.Expr, r.Annotations["summary"]+r.Annotations["description"])
		}
	}
	if rules == 0 {
		t.Error("no rules")
	}
	// The series that the tests of the rules make up have all labels.
	made := regexp.MustCompile(`series: '(lobsink_[a-z_]+)\{([^}]*)\}'`)
	for _, m := range made.FindAllStringSubmatch(readDeployed(t, "prometheus/alerts_test.yaml"), -1) {
		e.checkQuery(t, m[1]+"{"+m[2]+"}", "")
		labels, _ := e.labels(m[1])
		for _, label := range labels {
			if !strings.Contains(m[2], label+`="`) {
				t.Errorf("%s has a label %s, a test's has not: %s", m[1], label, m[2])
			}
		}
	}
}

func TestDeployMetricsOfDashboard(t *testing.T) {
	e := exportedMetrics()
	var file struct {
		Panels []struct {
			Title   string
			Targets []struct {
				Expr   string
				Legend string `yaml:"legendFormat"`
			}
		}
		Templating struct{ List []struct{ Query string } }
	}
	if err := yaml.Unmarshal([]byte(readDeployed(t, "grafana/lobsink.json")), &file); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			queries++
			e.checkQuery(t, target.Expr, target.Legend)
		}
	}
	for _, v := range file.Templating.List {
		e.checkQuery(t, v.Query, "")
	}
	if queries == 0 {
		t.Error("no queries")
	}
	e.checkQuery(t, readDeployed(t, "kubernetes/50-scaling.yaml"), "")
}

// TestDeployMetricsOfDocs: the list of metrics is complete and has nothing else,
// and no page of the runbook names a metric that there is not.
func TestDeployMetricsOfDocs(t *testing.T) {
	e := exportedMetrics()
	const runbooks = "../../docs/runbook"
	files, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text := string(readFile(t, filepath.Join(runbooks, f.Name())))
		for _, name := range series.FindAllString(text, -1) {
			if _, ok := e.labels(name); !ok {
				t.Errorf("%s: nothing exports %s", f.Name(), name)
			}
		}
	}
	listed := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(lobsink_[a-z0-9_]+)` \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, filepath.Join(runbooks, "README.md"))), -1) {
		listed[m[1]] = m[2]
	}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		slices.Sort(e[name])
		if want := strings.Join(e[name], ", "); strings.TrimSpace(listed[name]) != want {
			t.Errorf("docs/runbook/README.md: %s has the labels %q, listed are %q", name, want, listed[name])
		}
		delete(listed, name)
	}
	if len(listed) > 0 {
		t.Errorf("nothing exports %v", listed)
	}
}

// TestDeployMetricsOfARun: what is scraped is what is listed, and Prometheus's own
// linter has nothing to say about it.
func TestDeployMetricsOfARun(t *testing.T) {
	e := exportedMetrics()
	m := newManager(t, 0)
	nats, address := freePort(t), freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"run", "--data-dir", t.TempDir(), "--http", address, "--nats-listen", nats}, nil, &bytes.Buffer{}, &errs)
	}()
	m.hears(t, "STATUS=ready")
	file := filepath.Join(t.TempDir(), "report.xml")
	if err := os.WriteFile(file, []byte("<report><line/><line/></report>"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run(ctx, []string{"pub", file, "--nats", "nats://" + nats}, nil, &out, &out); code != exitOK {
		t.Fatalf("pub: exit code %d: %s", code, out.String())
	}
	scrape := func() string {
		client := http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
		defer client.CloseIdleConnections()
		answer, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := scrape()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(text, `lobsink_groups_total{answer="appended"}`); text = scrape() {
		if time.Now().After(end) {
			t.Fatalf("nothing is stored:\n%s", text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (lobsink_\S+) `).FindAllStringSubmatch(text, -1) {
		if _, ok := e[m[1]]; !ok {
			t.Errorf("%s is not listed", m[1])
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "lobsink_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
